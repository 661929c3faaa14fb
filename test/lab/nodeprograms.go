//go:build linux

package lab

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/cluster-proxy/test/lab/certs"
	"open-cluster-management.io/cluster-proxy/test/lab/nodes"
)

const (
	serviceCIDR = "10.96.0.0/16"
	podCIDR     = "10.244.0.0/16"
)

// nodePrograms are the arguments of what runs on a machine.
func (c *Cluster) nodePrograms() map[string][]string {
	client := "http://127.0.0.1:2379"
	peer := "http://127.0.0.1:2380"
	user := func(name string) []string {
		file := c.file(name + ".kubeconfig")
		return []string{"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file, "--leader-elect=false"}
	}
	return map[string][]string{
		"containerd": {"--config=" + c.file("containerd.toml")},
		"etcd": {"--data-dir=" + c.file("etcd"), "--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
			"--unsafe-no-fsync=true", "--log-level=warn"},
		"kube-apiserver": {"--etcd-servers=" + client, "--advertise-address=" + c.machine.Address, "--secure-port=6443",
			"--service-cluster-ip-range=" + serviceCIDR, "--allow-privileged=true", "--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction", "--client-ca-file=" + c.file("ca.crt"),
			"--tls-cert-file=" + c.file("apiserver.crt"), "--tls-private-key-file=" + c.file("apiserver.key"),
			"--kubelet-certificate-authority=" + c.file("ca.crt"), "--kubelet-client-certificate=" + c.file("kubelet-client.crt"),
			"--kubelet-client-key=" + c.file("kubelet-client.key"), "--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.file("sa.pub"),
			"--service-account-signing-key-file=" + c.file("sa.key"),
			"--requestheader-client-ca-file=" + c.file("front-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User", "--requestheader-uid-headers=X-Remote-Uid", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + c.file("front-client.crt"), "--proxy-client-key-file=" + c.file("front-client.key"),
			"--audit-policy-file=" + c.file("audit-policy.json"), "--audit-log-path=" + c.auditLog(), "--profiling=false"},
		"kube-controller-manager": append(user("controller-manager"), "--kube-api-qps=200", "--kube-api-burst=400",
			"--use-service-account-credentials=true", "--root-ca-file="+c.file("ca.crt"), "--service-account-private-key-file="+c.file("sa.key"),
			"--cluster-signing-cert-file="+c.file("ca.crt"), "--cluster-signing-key-file="+c.file("ca.key"),
			"--allocate-node-cidrs=true", "--cluster-cidr="+podCIDR, "--service-cluster-ip-range="+serviceCIDR, "--cluster-name="+c.Name,
			"--requestheader-client-ca-file="+c.file("front-ca.crt"), "--profiling=false"),
		"kube-scheduler": user("scheduler"),
		"kubelet": {"--config=" + c.file("kubelet.yaml"), "--kubeconfig=" + c.file("node.kubeconfig"),
			"--hostname-override=" + c.machine.HostName(), "--node-ip=" + c.machine.Address},
		"kube-proxy": {"--config=" + c.file("kube-proxy.yaml")},
	}
}

func (c *Cluster) startNodePrograms(assets Assets, names ...string) error {
	programs := c.nodePrograms()
	for _, name := range names {
		path := assets.path(name)
		if name == "containerd" {
			path = name
		}
		argv := append([]string{path}, programs[name]...)
		if name == "kube-proxy" {
			// Nodes keep processor time for it. Here it would come after the pods, whose
			// group is favoured, and take three seconds instead of 0.2 to send connections
			// elsewhere.
			argv = append([]string{"nice", "-n", "-15"}, argv...)
		}
		if err := c.machine.Start(name, nodes.Program{Argv: argv}); err != nil {
			return err
		}
	}
	return nil
}

// prepareNode makes the certificates and kubeconfigs that a real node's parts
// have of their own.
func (c *Cluster) prepareNode(ca *certs.Authority) error {
	front, err := certs.New(c.dir, "front-ca", c.Name+" front proxy CA")
	if err != nil {
		return err
	}
	address := net.ParseIP(c.machine.Address)
	for _, err := range []error{
		ca.Server("apiserver", []net.IP{net.IPv4(10, 96, 0, 1), address}, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local", c.Name+"."+nodes.Domain, c.Name),
		ca.Server("kubelet", []net.IP{address}, c.machine.HostName()),
		ca.Client("controller-manager", "system:kube-controller-manager"),
		ca.Client("scheduler", "system:kube-scheduler"),
		ca.Client("kube-proxy", "system:kube-proxy"),
		ca.Client("node", "system:node:"+c.machine.HostName(), "system:nodes"),
		front.Client("front-client", "front-proxy-client"),
	} {
		if err != nil {
			return err
		}
	}
	for _, user := range []string{"controller-manager", "scheduler", "kube-proxy", "node"} {
		if err := c.writeKubeconfig(user, user+".kubeconfig", "https://127.0.0.1:6443"); err != nil {
			return err
		}
	}
	return c.writeKubeconfig("admin", "inside.kubeconfig", "https://127.0.0.1:6443")
}

// keep has the machine keep a program of the lab running.
func (c *Cluster) keep(p program) error {
	name := filepath.Base(p.name)
	return c.machine.Start(name, nodes.Program{Argv: append([]string{p.path}, p.args...), Env: p.env})
}

// stopProgram ends a program that keep started, and returns when it is gone.
func (c *Cluster) stopProgram(ctx context.Context, name string) error {
	return c.machine.Stop(ctx, name)
}

// network does for a cluster what its network provider would: it gives Services
// of type LoadBalancer an address of the machine's pool, which is all that
// kube-proxy needs to serve them, and enforces NetworkPolicies.
func (c *Cluster) network(ctx context.Context, machines *nodes.Lab) {
	log := program{name: "network", log: filepath.Join(c.logs, c.Name+"-network.log")}
	cs, err := c.clientset()
	if err != nil {
		log.note(err.Error())
		return
	}
	seen := newNetworkCache(cs)
	go seen.run(ctx)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	said, rules := "", ""
	for {
		var err error
		if seen.filled() {
			err = c.giveAddresses(ctx, cs, seen)
			if err == nil {
				rules, err = c.enforcePolicies(seen, machines, rules)
			}
		}
		// An error here is mostly the API server's being away.
		if err != nil && err.Error() != said {
			said = err.Error()
			log.note(said)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// enforcePolicies brings the machine's rules up to date, and gives what they are
// now.
func (c *Cluster) enforcePolicies(seen *networkCache, machines *nodes.Lab, before string) (string, error) {
	state := policyState{policies: listed[*networkingv1.NetworkPolicy](seen.policies), pods: listed[*corev1.Pod](seen.pods), namespaces: map[string]labels.Set{}}
	if len(state.policies) == 0 && before == "" {
		return before, nil
	}
	for _, namespace := range listed[*corev1.Namespace](seen.namespaces) {
		state.namespaces[namespace.Name] = namespace.Labels
	}
	rules, err := state.rules()
	if err != nil || rules == before {
		return before, err
	}
	if err := machines.RunInput(c.Name, rules, "nft", "-f", "-"); err != nil {
		return before, err
	}
	return rules, nil
}

// networkCache has what network needs.
type networkCache struct {
	follower
	services, policies, pods, namespaces cache.Store
}

func newNetworkCache(client kubernetes.Interface) *networkCache {
	c, core := &networkCache{}, client.CoreV1().RESTClient()
	c.services = c.follow(core, "services", "", &corev1.Service{})
	c.policies = c.follow(client.NetworkingV1().RESTClient(), "networkpolicies", "", &networkingv1.NetworkPolicy{})
	c.pods = c.follow(core, "pods", "", &corev1.Pod{})
	c.namespaces = c.follow(core, "namespaces", "", &corev1.Namespace{})
	return c
}

func (c *Cluster) giveAddresses(ctx context.Context, cs *kubernetes.Clientset, seen *networkCache) error {
	free := c.machine.LoadBalancerAddresses()
	var waiting []*corev1.Service
	for _, s := range listed[*corev1.Service](seen.services) {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
			waiting = append(waiting, s)
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			free = slices.DeleteFunc(free, func(address string) bool { return address == ingress.IP })
		}
	}
	for i, s := range waiting {
		if i >= len(free) {
			return fmt.Errorf("no address is left for Service %s/%s", s.Namespace, s.Name)
		}
		patch := fmt.Appendf(nil, `{"status":{"loadBalancer":{"ingress":[{"ip":%q,"ipMode":"VIP"}]}}}`, free[i])
		if _, err := cs.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}
