package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/test/lab/certs"
	"open-cluster-management.io/cluster-proxy/test/lab/nodes"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

// Cluster is one cluster of a lab: etcd, kube-apiserver, controller manager,
// scheduler, and kwok in place of nodes.
type Cluster struct {
	Name string
	// KubeconfigPath is an administrator's kubeconfig.
	KubeconfigPath string

	dir       string // PKI and data
	logs      string
	etcdPort  int
	apiPort   int
	kwokPort  int
	webPort   int            // of the program behind every pod's port 8080
	agentPort int            // of the proxy server's agent port (hub only)
	older     string         // its kube-apiserver, if that is of a release before the others'
	grpc      bool           // joins by OCM's gRPC server
	tokens    bool           // its addons' credentials of the hub are tokens
	grpcPort  int            // of OCM's gRPC server (hub only)
	machine   *nodes.Machine // nil where kwok stands in for nodes
	config    *rest.Config
}

// RESTConfig is an administrator's. The caller may change what it gets.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

func (c *Cluster) isHub() bool { return c.Name == hubName }

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) url() string { return fmt.Sprintf("https://127.0.0.1:%d", c.apiPort) }

// prepare makes certificates and kubeconfigs.
func (c *Cluster) prepare() error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	ca, err := certs.New(c.dir, "ca", c.Name+" CA")
	if err != nil {
		return err
	}
	for _, err := range []error{
		ca.Server("apiserver", []net.IP{net.IPv4(10, 96, 0, 1)}, "kubernetes", "kubernetes.default", "kubernetes.default.svc", c.Name),
		ca.Server("kubelet", nil),
		ca.Client("admin", "admin", "system:masters"),
		ca.Client("kubelet-client", "kube-apiserver", "system:masters"),
		ca.Client("bootstrap", bootstrapUser, bootstrapGroup),
		ca.Client("sa", "service-account-signer"),
	} {
		if err != nil {
			return err
		}
	}
	if c.isHub() {
		if err := c.prepareOCM(ca); err != nil {
			return err
		}
	}
	c.KubeconfigPath = c.file("admin.kubeconfig")
	hub := c.url()
	if c.machine != nil {
		hub = "https://" + c.machine.Address + ":6443"
		if err := c.prepareNode(ca); err != nil {
			return err
		}
	} else if err := c.prepareFrontProxy(); err != nil {
		return err
	}
	if err := c.writeKubeconfig("admin", "admin.kubeconfig", c.url()); err != nil {
		return err
	}
	if err := c.writeKubeconfig("bootstrap", "bootstrap.kubeconfig", hub); err != nil {
		return err
	}
	return c.loadConfig()
}

// prepareFrontProxy makes the certificates with which the kube-apiserver asserts users towards
// aggregated APIs. It has a CA of its own, which signs nothing else.
func (c *Cluster) prepareFrontProxy() error {
	if err := os.MkdirAll(c.file("front-proxy"), 0o700); err != nil {
		return err
	}
	ca, err := certs.New(c.file("front-proxy"), "ca", c.Name+" front proxy CA")
	if err != nil {
		return err
	}
	return ca.Client("client", "front-proxy-client")
}

func (c *Cluster) loadConfig() (err error) {
	c.config, err = clientcmd.BuildConfigFromFlags("", c.KubeconfigPath)
	if err == nil {
		c.config.QPS = -1
	}
	return err
}

// insideKubeconfig is an administrator's for programs that run where the
// cluster's own do.
func (c *Cluster) insideKubeconfig() string {
	if c.machine != nil {
		return c.file("inside.kubeconfig")
	}
	return c.KubeconfigPath
}

// start runs a program beside the cluster's own.
func (c *Cluster) start(g *group, p program) error {
	if c.machine != nil {
		return c.keep(p)
	}
	g.start(p)
	return nil
}

// writeKubeconfig writes a kubeconfig with everything in it, so that the file
// can be copied.
func (c *Cluster) writeKubeconfig(user, file, server string) error {
	read := func(name string) []byte {
		data, err := os.ReadFile(c.file(name))
		if err != nil {
			panic(err) // written by prepare a moment ago
		}
		return data
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[c.Name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: read("ca.crt")}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: read(user + ".crt"), ClientKeyData: read(user + ".key")}
	config.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: user}
	config.CurrentContext = c.Name
	return clientcmd.WriteToFile(*config, c.file(file))
}

const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata","omitStages":["RequestReceived"]}]}`

// AuditLog is the file of the kube-apiserver's audit events, one JSON a line.
func (c *Cluster) auditLog() string { return filepath.Join(c.logs, c.Name+"-audit.log") }

func (c *Cluster) program(assets Assets, name string, args ...string) program {
	return program{name: c.Name + "-" + name, path: assets.path(name), args: args, log: filepath.Join(c.logs, c.Name+"-"+name+".log")}
}

// startStore starts etcd and the kube-apiserver and waits until it is ready.
func (c *Cluster) startStore(ctx context.Context, g *group, assets Assets, peerPort int) error {
	if err := c.startEtcd(ctx, g, assets, peerPort); err != nil {
		return err
	}
	return c.startAPIServer(ctx, g, assets)
}

func (c *Cluster) startEtcd(ctx context.Context, g *group, assets Assets, peerPort int) error {
	etcd := fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort)
	peer := fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	store := g.start(c.program(assets, "etcd",
		"--data-dir="+c.file("etcd"), "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--unsafe-no-fsync=true", "--log-level=warn"))
	if err := store.await(ctx, func(ctx context.Context) error { return getOK(ctx, http.DefaultClient, etcd+"/health") }); err != nil {
		return fmt.Errorf("waiting for etcd of %s: %w", c.Name, err)
	}
	return nil
}

// startAPIServer adds flags to those of the kube-apiserver.
func (c *Cluster) startAPIServer(ctx context.Context, g *group, assets Assets, flags ...string) error {
	if err := os.WriteFile(c.file("audit-policy.json"), []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	p := c.program(assets, "kube-apiserver", append([]string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.etcdPort), fmt.Sprint("--secure-port=", c.apiPort), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", "--tls-cert-file=" + c.file("apiserver.crt"), "--tls-private-key-file=" + c.file("apiserver.key"),
		"--client-ca-file=" + c.file("ca.crt"), "--service-account-key-file=" + c.file("sa.pub"), "--service-account-signing-key-file=" + c.file("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--authorization-mode=Node,RBAC", "--service-cluster-ip-range=" + c.serviceRange(),
		"--requestheader-client-ca-file=" + c.file("front-proxy/ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-uid-headers=X-Remote-Uid", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.file("front-proxy/client.crt"), "--proxy-client-key-file=" + c.file("front-proxy/client.key"),
		"--allow-privileged=true", "--kubelet-client-certificate=" + c.file("kubelet-client.crt"), "--kubelet-client-key=" + c.file("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP", "--enable-priority-and-fairness=false", "--profiling=false",
		// Only a node-lifecycle controller would take that taint off again.
		"--disable-admission-plugins=TaintNodesByCondition",
		"--audit-policy-file=" + c.file("audit-policy.json"), "--audit-log-path=" + c.auditLog()}, flags...)...)
	if c.older != "" {
		p.path = c.older
	}
	server := g.start(p)
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return err
	}
	if err := server.await(ctx, func(ctx context.Context) error { return getOK(ctx, client, c.url()+"/readyz") }); err != nil {
		return fmt.Errorf("waiting for the kube-apiserver of %s: %w", c.Name, err)
	}
	return nil
}

// serviceRange is where Services have their addresses. On the hub they are this
// machine's own, so that its kube-apiserver finds aggregated APIs there: see
// serviceTable.listenOn.
func (c *Cluster) serviceRange() string {
	if c.isHub() {
		return "127.96.0.0/16"
	}
	return "10.96.0.0/16"
}

func getOK(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", url, resp.StatusCode)
	}
	return nil
}

var controllers = []string{
	"garbage-collector-controller", "namespace-controller", "serviceaccount-controller", "serviceaccount-token-controller",
	"clusterrole-aggregation-controller", "root-ca-certificate-publisher-controller", "deployment-controller", "replicaset-controller",
	"endpointslice-controller", "endpoints-controller", "disruption-controller",
}

// startControllers starts what makes pods of Deployments: controller manager,
// scheduler and kwok.
func (c *Cluster) startControllers(g *group, assets Assets) error {
	var kcmPort, schedulerPort int
	if err := ports.Fill(&kcmPort, &schedulerPort); err != nil {
		return err
	}
	enabled := controllers
	if c.isHub() {
		enabled = append(enabled[:len(enabled):len(enabled)], "certificatesigningrequest-signing-controller")
	}
	g.start(c.program(assets, "kube-controller-manager",
		"--kubeconfig="+c.KubeconfigPath, "--leader-elect=false", fmt.Sprint("--secure-port=", kcmPort), "--bind-address=127.0.0.1",
		"--use-service-account-credentials=false", "--service-account-private-key-file="+c.file("sa.key"), "--root-ca-file="+c.file("ca.crt"),
		"--cluster-signing-cert-file="+c.file("ca.crt"), "--cluster-signing-key-file="+c.file("ca.key"), "--profiling=false",
		"--controllers="+strings.Join(enabled, ",")))
	g.start(c.program(assets, "kube-scheduler",
		"--kubeconfig="+c.KubeconfigPath, "--leader-elect=false", fmt.Sprint("--secure-port=", schedulerPort), "--bind-address=127.0.0.1"))
	return c.startNode(g, assets)
}

func (c *Cluster) clientset() (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(c.config)
}
