package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"
	workclient "open-cluster-management.io/api/client/work/clientset/versioned"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/lab"
)

// Run starts the suite that options describe for a folder of this run, hands it to use, runs the
// tests, and stops it. It returns the code to exit with.
func Run(m *testing.M, options func(dir string) (Options, error), use func(*Suite)) int {
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	dir, err := os.MkdirTemp("", "cluster-proxy-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for this run:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	o, err := options(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reading the environment:", err)
		return 1
	}
	s, err := Start(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "setting up the clusters:", err)
		s.Stop(true)
		return 1
	}
	use(s)
	// An interrupt ends the lab, and not only the waiting for it.
	interrupted := context.AfterFunc(ctx, func() {
		s.Stop(false)
		os.Exit(130)
	})
	cleaning, stop := context.WithCancel(ctx)
	if s.Lab != nil {
		go s.CleanRequests(cleaning)
	}
	code := m.Run()
	stop()
	interrupted()
	if err := s.Races(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: a process of the addon:", err)
		code = max(code, 1)
	}
	s.Stop(code != 0)
	return code
}

// Start prepares the clusters: a lab with the addon on it, or those that others
// made. It returns when every cluster is Available and reached. Stop ends what it
// began, also after an error.
func Start(ctx context.Context, o Options) (*Suite, error) {
	s := &Suite{
		Dir: o.Dir, Namespace: "open-cluster-management-addon", AgentNamespace: identity.DefaultAgentNamespace, options: o,
		AdminToken: map[string]string{}, ViewerToken: map[string]string{}, AuditLog: map[string]string{}, admin: map[string]*rest.Config{},
	}
	prepare := s.startLab
	if o.Clusters != nil {
		prepare = s.find
	}
	if err := prepare(ctx); err != nil {
		return s, err
	}
	for _, cluster := range s.Clusters {
		fmt.Fprintln(os.Stderr, "waiting until", cluster, "is Available")
		if err := WaitUntil(ctx, 5*time.Minute, func() error { return s.AddonAvailable(ctx, cluster) }); err != nil {
			return s, fmt.Errorf("waiting until %s is Available: %w", cluster, err)
		}
		if err := s.makeUsers(ctx, cluster); err != nil {
			return s, err
		}
	}
	if err := s.makeHubUser(ctx); err != nil {
		return s, err
	}
	return s, s.FindEndpoints(ctx)
}

// Stop stops the lab, of which it keeps the logs if the run has failed. From
// clusters that others made it removes the suite's users.
func (s *Suite) Stop(failed bool) {
	if s.Lab == nil {
		s.removeUsers()
		return
	}
	if failed {
		keepLogs(s.Lab)
	}
	_ = s.Lab.Stop()
}

// startLab builds the binary, starts the lab and installs the chart.
func (s *Suite) startLab(ctx context.Context) error {
	binary := filepath.Join(s.Dir, "cluster-proxy")
	if err := s.BuildBinary(ctx, s.options.Root, binary); err != nil {
		return err
	}
	options := lab.Options{Dir: filepath.Join(s.Dir, "lab"), Clusters: append([]string{"cluster1", secondCluster}, s.options.More...), Older: s.options.Older,
		Binary: binary, Nodes: s.options.Nodes, Out: os.Stderr}
	if !s.options.Nodes {
		// On nodes OCM's work agent, joined by gRPC, once left a ManifestWork
		// undeleted for 20 minutes; why is not known yet.
		options.GRPC, options.Tokens = []string{secondCluster}, []string{secondCluster}
	}
	l, err := lab.Start(ctx, options)
	if err != nil {
		return fmt.Errorf("starting the lab: %w", err)
	}
	s.Lab, s.hub, s.HubKubeconfig = l, l.Hub.RESTConfig(), l.Hub.KubeconfigPath
	s.Clusters = slices.Sorted(maps.Keys(l.Managed))
	for name, c := range l.Managed {
		s.admin[name] = c.RESTConfig()
	}
	if err := s.connect(); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "installing the chart")
	if err := s.restrictNamespace(ctx); err != nil {
		return err
	}
	if err := l.InstallChart(ctx, "cluster-proxy", s.Namespace, filepath.Join(s.options.Root, "charts/cluster-proxy"), s.ChartValues()...); err != nil {
		return fmt.Errorf("installing the chart: %w", err)
	}
	return nil
}

// find finds the clusters that others made.
func (s *Suite) find(context.Context) (err error) {
	given := s.options.Clusters
	if given.ProxyServer == "" || given.ProxyAPI == "" || len(given.Managed) == 0 {
		return errors.New("clusters that others made need kubeconfigs of managed ones, and the addresses of the proxy server and of the proxy API")
	}
	s.HubKubeconfig = given.Hub
	if s.hub, err = load(given.Hub); err != nil {
		return err
	}
	s.Clusters = slices.Sorted(maps.Keys(given.Managed))
	for cluster, file := range given.Managed {
		if s.admin[cluster], err = load(file); err != nil {
			return err
		}
	}
	return s.connect()
}

func load(kubeconfig string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %q: %w", kubeconfig, err)
	}
	cfg.QPS = -1 // as the lab's have it
	return cfg, nil
}

// CleanRequests removes certificate signing requests that have been answered.
// Kubernetes does after an hour; OCM's agents ask for nothing more while there
// are ten of a cluster, which these tests are through in minutes.
func (s *Suite) CleanRequests(ctx context.Context) {
	requests := s.Hub.CertificatesV1().CertificateSigningRequests()
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

// BuildBinary builds what the pods run: with the race detector, but static where
// the pods are real ones with nothing else in them.
func (s *Suite) BuildBinary(ctx context.Context, root, binary string) error {
	build := exec.CommandContext(ctx, "go", "build", "-race", "-o", binary, "./cmd/cluster-proxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if s.options.Nodes || s.options.WithoutRace {
		build = exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/cluster-proxy")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return nil
}

// KarmadaControlPlane is the managed cluster that stands for Karmada's control plane.
const KarmadaControlPlane = "cluster1"

// RecordedCluster is the one whose sessions of exec and attach the proxy API records, in the lab.
const RecordedCluster = "cluster1"

// ChartValues are those with which the scenarios need the hub's chart in the lab.
func (s *Suite) ChartValues() []string {
	values := append(s.Lab.ChartValues(), "featureGates.clusterProfile=true", "proxyAPI.clusterDomain="+ClusterDomain,
		"ui.enabled=true", "karmadaAPI.enabled=true", "karmadaAPI.controlPlaneCluster="+KarmadaControlPlane,
		"proxyAPI.recording.enabled=true", "proxyAPI.recording.clusters={"+RecordedCluster+"}")
	if s.options.Delay > 0 {
		_, port, err := net.SplitHostPort(DelayedListener(nil, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Lab.AgentPort)), s.options.Delay))
		if err != nil {
			panic(err)
		}
		values = append(values, "proxyServer.port="+port)
	}
	if s.options.Nodes {
		values = append(values, exposedServices()...)
		values = append(values, "replicas=2", "networkPolicies.enabled=true")
		return append(values, s.options.Values...)
	}
	// The lab's pods read Secrets twice a second, and processes once; on a machine
	// that is busy with other tests both take longer.
	return append(append(values, "secretPropagationSeconds=10"), s.options.Values...)
}

// restrictNamespace makes the addon's namespace on the hub, where pods must meet
// Pod Security's strictest profile.
func (s *Suite) restrictNamespace(ctx context.Context) error {
	_, err := s.Hub.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.Namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	return err
}

// connect makes the clients of the hub.
func (s *Suite) connect() (err error) {
	cfg := s.HubConfig()
	if s.Hub, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	if s.Addons, err = addonclient.NewForConfig(cfg); err != nil {
		return err
	}
	if s.Works, err = workclient.NewForConfig(cfg); err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	s.Placements = dyn.Resource(schema.GroupVersionResource{Group: "cluster.open-cluster-management.io", Version: "v1beta1", Resource: "placements"})
	s.ManagedClusters = dyn.Resource(schema.GroupVersionResource{Group: "cluster.open-cluster-management.io", Version: "v1", Resource: "managedclusters"})
	s.Configuration = dyn.Resource(schema.GroupVersionResource{Group: "proxy.open-cluster-management.io", Version: "v1alpha1", Resource: "managedproxyconfigurations"})
	return nil
}

// FindEndpoints finds where the proxy server and the proxy API are, and waits until a
// cluster is reached through both endpoints.
func (s *Suite) FindEndpoints(ctx context.Context) (err error) {
	if s.Lab == nil {
		s.ProxyServer, s.ProxyAPI = s.options.Clusters.ProxyServer, s.options.Clusters.ProxyAPI
	} else if err := s.findInLab(); err != nil {
		return err
	}
	return WaitUntil(ctx, Timeout, func() error {
		secret, err := s.Hub.CoreV1().Secrets(s.Namespace).Get(ctx, "proxy-server-ca", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.HubCA = secret.Data["ca.crt"]
		if err := s.Reachable(ctx, s.Clusters[0]); err != nil {
			return err
		}
		endpoints := s.Endpoints(s.Clusters[0])
		got, err := Ask(ctx, endpoints[len(endpoints)-1].Cfg, Request{Method: http.MethodGet, Path: "/version"})
		if err == nil && got.Code != http.StatusOK {
			err = fmt.Errorf("the aggregated API answers %d: %.200s", got.Code, got.Body)
		}
		return err
	})
}

func (s *Suite) findInLab() (err error) {
	if s.ProxyServer, err = s.Lab.ServiceAddress("hub", s.Namespace, "proxy-entrypoint", 8090); err != nil {
		return err
	}
	if s.ProxyAPI, err = s.Lab.ServiceAddress("hub", s.Namespace, "cluster-proxy-addon-user", 9092); err != nil {
		return err
	}
	for _, cluster := range s.Clusters {
		s.AuditLog[cluster] = s.Lab.AuditLog(cluster)
	}
	return nil
}

// exposedServices are chart values: of the managed clusters' Services, these
// may be reached. The kube-apiserver is one, with HTTPS and WebSockets of its own. The last
// one is that of examples/prometheus.
func exposedServices() []string {
	return []string{
		"exposedServices[0].namespace=default", "exposedServices[0].service=web",
		"exposedServices[1].namespace=default", "exposedServices[1].service=kubernetes", "exposedServices[1].protocol=https",
		"exposedServices[2].namespace=monitoring", "exposedServices[2].service=prometheus", "exposedServices[2].port=9090", "exposedServices[2].protocol=http",
	}
}
