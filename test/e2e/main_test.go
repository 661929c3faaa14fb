package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"
	workclient "open-cluster-management.io/api/client/work/clientset/versioned"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// installed is what the scenarios know of the system they run against.
type installed struct {
	lab            *lab.Lab
	clusters       []string
	namespace      string // of the addon on the hub
	agentNamespace string // of the agent on each managed cluster
	dir            string // for files of this run

	hub             *kubernetes.Clientset
	addons          *addonclient.Clientset
	works           *workclient.Clientset
	configuration   dynamic.ResourceInterface
	placements      dynamic.NamespaceableResourceInterface
	managedClusters dynamic.ResourceInterface

	proxyServer string // host:port of the client port
	proxyAPI    string // host:port of the HTTPS door
	hubCA       []byte
	// hubToken is of a service account of the hub, who may do everything on the
	// managed clusters.
	hubToken string

	adminToken  map[string]string
	viewerToken map[string]string
	auditLog    map[string]string
}

var suite *installed

// clusterDomain is the one that every cluster has a host below, at the proxy API.
const clusterDomain = "clusters.example.org"

// other is a cluster that joins in OCM's other way, by gRPC, and whose addons get
// tokens of the hub, where OCM has that.
const other = "2nd-cluster"

// withoutRace builds what the pods run without the race detector, to measure it.
var withoutRace bool

// benchDelay is how long a round trip between agents and the hub takes; nothing
// is added if it is 0.
var benchDelay, _ = time.ParseDuration(os.Getenv("BENCH_DELAY"))

// onNodes runs the scenarios on real nodes: make e2e.
var onNodes = os.Getenv("E2E_NODES") != ""

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, m)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) int {
	dir, err := os.MkdirTemp("", "cluster-proxy-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for this run:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	s, err := install(ctx, dir)
	if s != nil && s.lab != nil {
		defer s.lab.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "setting up the lab:", err)
		if s != nil && s.lab != nil {
			keepLogs(s.lab)
		}
		return 1
	}
	suite = s
	// An interrupt ends the lab, and not only the waiting for it.
	interrupted := context.AfterFunc(ctx, func() {
		s.lab.Stop()
		os.Exit(130)
	})
	cleaning, stop := context.WithCancel(ctx)
	go s.cleanRequests(cleaning)
	code := m.Run()
	stop()
	interrupted()
	if code != 0 {
		keepLogs(s.lab)
	}
	return code
}

// cleanRequests removes certificate signing requests that have been answered.
// Kubernetes does after an hour; OCM's agents ask for nothing more while there
// are ten of a cluster, which these tests are through in minutes.
func (s *installed) cleanRequests(ctx context.Context) {
	requests := s.hub.CertificatesV1().CertificateSigningRequests()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
		list, err := requests.List(ctx, metav1.ListOptions{LabelSelector: "open-cluster-management.io/addon-name=" + identity.AddonName})
		if err != nil {
			continue // the next time
		}
		for _, csr := range list.Items {
			if len(csr.Status.Certificate) > 0 && time.Since(csr.CreationTimestamp.Time) > 20*time.Second {
				_ = requests.Delete(ctx, csr.Name, metav1.DeleteOptions{})
			}
		}
	}
}

// install builds the binary, starts the lab, installs the chart and waits until
// every cluster is Available.
func install(ctx context.Context, dir string) (*installed, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(dir, "cluster-proxy")
	if err := buildBinary(ctx, root, binary); err != nil {
		return nil, err
	}
	options := lab.Options{Dir: filepath.Join(dir, "lab"), Clusters: []string{"cluster1", other}, Binary: binary, Nodes: onNodes, Out: os.Stderr}
	if !onNodes {
		// On nodes OCM's work agent, joined by gRPC, once left a ManifestWork
		// undeleted for 20 minutes; why is not known yet.
		options.GRPC, options.Tokens = []string{other}, []string{other}
	}
	l, err := lab.Start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("starting the lab: %w", err)
	}
	s := &installed{
		lab: l, dir: dir, namespace: "open-cluster-management-addon", agentNamespace: identity.DefaultAgentNamespace,
		adminToken: map[string]string{}, viewerToken: map[string]string{}, auditLog: map[string]string{},
	}
	for name := range l.Managed {
		s.clusters = append(s.clusters, name)
	}
	if err := s.connect(); err != nil {
		return s, err
	}
	fmt.Fprintln(os.Stderr, "installing the chart")
	if err := s.restrictNamespace(ctx); err != nil {
		return s, err
	}
	if err := l.InstallChart(ctx, "cluster-proxy", s.namespace, filepath.Join(root, "charts/cluster-proxy"), s.chartValues()...); err != nil {
		return s, fmt.Errorf("installing the chart: %w", err)
	}
	for _, cluster := range s.clusters {
		fmt.Fprintln(os.Stderr, "waiting until", cluster, "is Available")
		if err := waitUntil(ctx, 5*time.Minute, func() error { suite = s; return addonAvailable(ctx, cluster) }); err != nil {
			return s, fmt.Errorf("waiting until %s is Available: %w", cluster, err)
		}
		if err := s.makeUsers(ctx, cluster); err != nil {
			return s, err
		}
	}
	if err := s.makeHubUser(ctx); err != nil {
		return s, err
	}
	return s, s.findDoors(ctx)
}

// buildBinary builds what the pods run: with the race detector, but static where
// the pods are real ones with nothing else in them.
func buildBinary(ctx context.Context, root, binary string) error {
	build := exec.CommandContext(ctx, "go", "build", "-race", "-o", binary, "./cmd/cluster-proxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if onNodes || withoutRace {
		build = exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/cluster-proxy")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return nil
}

func (s *installed) chartValues() []string {
	values := append(s.lab.ChartValues(), "featureGates.clusterProfile=true", "proxyAPI.clusterDomain="+clusterDomain)
	if benchDelay > 0 {
		_, port, err := net.SplitHostPort(delayedListener(nil, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.lab.AgentPort)), benchDelay))
		if err != nil {
			panic(err)
		}
		values = append(values, "proxyServer.port="+port)
	}
	if onNodes {
		values = append(values, exposedServices()...)
		return append(values, "replicas=2", "networkPolicies.enabled=true")
	}
	// The lab's pods read Secrets twice a second, and processes once; on a machine
	// that is busy with other tests both take longer.
	return append(values, "secretPropagationSeconds=10")
}

// restrictNamespace makes the addon's namespace on the hub, where pods must meet
// Pod Security's strictest profile.
func (s *installed) restrictNamespace(ctx context.Context) error {
	_, err := s.hub.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	return err
}

func (s *installed) connect() (err error) {
	cfg := s.lab.Hub.RESTConfig()
	if s.hub, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	if s.addons, err = addonclient.NewForConfig(cfg); err != nil {
		return err
	}
	if s.works, err = workclient.NewForConfig(cfg); err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	s.placements = dyn.Resource(schema.GroupVersionResource{Group: "cluster.open-cluster-management.io", Version: "v1beta1", Resource: "placements"})
	s.managedClusters = dyn.Resource(schema.GroupVersionResource{Group: "cluster.open-cluster-management.io", Version: "v1", Resource: "managedclusters"})
	s.configuration = dyn.Resource(schema.GroupVersionResource{Group: "proxy.open-cluster-management.io", Version: "v1alpha1", Resource: "managedproxyconfigurations"})
	return nil
}

func (s *installed) findDoors(ctx context.Context) (err error) {
	if s.proxyServer, err = s.lab.ServiceAddress("hub", s.namespace, "proxy-entrypoint", 8090); err != nil {
		return err
	}
	if s.proxyAPI, err = s.lab.ServiceAddress("hub", s.namespace, "cluster-proxy-addon-user", 9092); err != nil {
		return err
	}
	for _, cluster := range s.clusters {
		s.auditLog[cluster] = s.lab.AuditLog(cluster)
	}
	return waitUntil(ctx, patience, func() error {
		secret, err := s.hub.CoreV1().Secrets(s.namespace).Get(ctx, "proxy-server-ca", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.hubCA = secret.Data["ca.crt"]
		if err := reachable(ctx, s.clusters[0]); err != nil {
			return err
		}
		doors := s.doors(s.clusters[0])
		got, err := ask(ctx, doors[len(doors)-1].cfg, request{method: http.MethodGet, path: "/version"})
		if err == nil && got.Code != http.StatusOK {
			err = fmt.Errorf("the aggregated API answers %d: %.200s", got.Code, got.Body)
		}
		return err
	})
}

// makeUsers makes an administrator and a viewer of pods on a managed cluster.
// Their tokens mean something there and nowhere else.
func (s *installed) makeUsers(ctx context.Context, cluster string) error {
	cs, err := kubernetes.NewForConfig(s.lab.Managed[cluster].RESTConfig())
	if err != nil {
		return err
	}
	for user, tokens := range map[string]map[string]string{"e2e-admin": s.adminToken, "e2e-viewer": s.viewerToken} {
		rules := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}, {NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}}
		if user == "e2e-viewer" {
			rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}}
		}
		meta := metav1.ObjectMeta{Name: user, Namespace: "default"}
		_, err1 := cs.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
		_, err2 := cs.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}, metav1.CreateOptions{})
		_, err3 := cs.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: user, Namespace: "default"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		}, metav1.CreateOptions{})
		for _, err := range []error{err1, err2, err3} {
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("making user %q on %s: %w", user, cluster, err)
			}
		}
		token, err := cs.CoreV1().ServiceAccounts("default").CreateToken(ctx, user, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("making a token for %q on %s: %w", user, cluster, err)
		}
		tokens[cluster] = token.Status.Token
	}
	return nil
}

// direct reaches a managed kube-apiserver with the administrator's token and
// without the addon.
func (s *installed) direct(cluster string) *rest.Config {
	admin := s.lab.Managed[cluster].RESTConfig()
	return &rest.Config{Host: admin.Host, BearerToken: s.adminToken[cluster], TLSClientConfig: rest.TLSClientConfig{CAData: s.clusterCA(cluster)}, QPS: -1}
}

// throughProxyAPI reaches a cluster as its users do, with the same token.
func (s *installed) throughProxyAPI(cluster string) *rest.Config {
	return &rest.Config{Host: "https://" + s.proxyAPI + "/" + cluster, BearerToken: s.adminToken[cluster], TLSClientConfig: rest.TLSClientConfig{CAData: s.hubCA}, QPS: -1}
}

func (s *installed) clusterCA(cluster string) []byte {
	cfg := rest.CopyConfig(s.lab.Managed[cluster].RESTConfig())
	if err := rest.LoadTLSFiles(cfg); err != nil {
		panic(err)
	}
	return cfg.CAData
}

// clientFiles writes the client certificate of Secret proxy-client to files, as
// a Go program in a pod would find them.
func (s *installed) clientFiles(t *testing.T) (ca, cert, key string) {
	t.Helper()
	secret, err := s.hub.CoreV1().Secrets(s.namespace).Get(t.Context(), "proxy-client", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ca, cert, key = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, data := range map[string][]byte{ca: s.hubCA, cert: secret.Data["tls.crt"], key: secret.Data["tls.key"]} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ca, cert, key
}

func (s *installed) clientTLS(t *testing.T) *tls.Config {
	t.Helper()
	ca, cert, key := s.clientFiles(t)
	return pkitest.Load(t, pki.Files{Cert: cert, Key: key, CA: ca}).ClientConfig("127.0.0.1")
}

func (s *installed) dialer(t *testing.T) *tunnel.Dialer {
	t.Helper()
	ca, cert, key := s.clientFiles(t)
	dialer, err := tunnel.FromFiles(s.proxyServer, ca, cert, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialer.Close() })
	return dialer
}

// kubectl runs the real kubectl through the proxy API.
func (s *installed) kubectl(ctx context.Context, cluster, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.kubectlPatiently(ctx, cluster, stdin, args...)
}

// kubectlPatiently is kubectl with nothing but ctx to end it.
func (s *installed) kubectlPatiently(ctx context.Context, cluster, stdin string, args ...string) (string, error) {
	file := filepath.Join(s.dir, cluster+".kubeconfig")
	if err := writeKubeconfig(file, s.throughProxyAPI(cluster)); err != nil {
		return "", err
	}
	path, env := s.lab.Kubectl(cluster)
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig=" + file}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// writeKubeconfig makes a kubeconfig of what a client of one door needs.
func writeKubeconfig(file string, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return err
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	if cfg.Proxy != nil {
		proxy, err := cfg.Proxy(nil)
		if err != nil {
			return err
		}
		kubeconfig.Clusters["c"].ProxyURL = proxy.String()
	}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "c"
	return clientcmd.WriteToFile(*kubeconfig, file)
}

func waitUntil(ctx context.Context, limit time.Duration, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// eventually waits until ready has no error and fails the test with the last
// one when patience has run out.
func eventually(t *testing.T, what string, ready func() error) {
	t.Helper()
	if err := waitUntil(context.Background(), 2*patience, ready); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// stopAgents takes the power from a cluster's agents; startAgents gives it back.
func (s *installed) stopAgents(t *testing.T, cluster string) {
	t.Helper()
	if err := s.lab.PausePods(cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.startAgents(t, cluster) })
}

func (s *installed) startAgents(t *testing.T, cluster string) {
	t.Helper()
	if err := s.lab.ResumePods(cluster); err != nil {
		t.Fatal(err)
	}
}

// keepLogs copies the logs of a failed run to where they outlive it, and shows
// the end of those of the addon's own processes.
func keepLogs(l *lab.Lab) {
	dir, err := os.MkdirTemp("", "cluster-proxy-e2e-logs-")
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "logs"), os.DirFS(l.LogDir()))
		for _, cluster := range l.Names() {
			// Only a lab with nodes has them.
			_ = os.CopyFS(filepath.Join(dir, "pods", cluster), os.DirFS(l.PodLogDir(cluster)))
		}
	}
	fmt.Fprintln(os.Stderr, "logs of the lab:", dir, err)
	for _, pattern := range []string{
		filepath.Join(dir, "logs", "*_open-cluster-management-*_*.log"),                            // of the lab's pods
		filepath.Join(dir, "pods", "*", "open-cluster-management-*_*cluster-proxy*", "*", "*.log"), // of real nodes
	} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			fmt.Fprintf(os.Stderr, "--- the end of %s\n%s\n", strings.TrimPrefix(file, dir), program.Tail(file))
		}
	}
}
