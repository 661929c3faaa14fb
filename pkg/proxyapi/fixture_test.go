package proxyapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel/tunneltest"
	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

func TestMain(m *testing.M) {
	// The last one holds errors back by the time since the one before, which is
	// decades for a test with a clock of its own.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		// That of an audit log lives as long as the process.
		goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// fakeClusters is what the hub knows: cluster name → since when it is away.
type fakeClusters map[string]time.Time

func (f fakeClusters) Synced() error                            { return nil }
func (f fakeClusters) Admit(a pki.Agent) error                  { return f.Served(a.Cluster) }
func (f fakeClusters) AwaySince(c string) time.Time             { return f[c] }
func (f fakeClusters) ClusterSet(c string) string               { return "set-of-" + c }
func (f fakeClusters) UID(c string) string                      { return "uid-of-" + c }
func (f fakeClusters) Place(c string) (provider, region string) { return "cloud", "region-of-" + c }
func (f fakeClusters) Names() []string                          { return slices.Collect(maps.Keys(f)) }
func (f fakeClusters) Served(c string) error {
	if _, ok := f[c]; !ok {
		return &clusters.NotServedError{Cluster: c}
	}
	return nil
}
func (f fakeClusters) Describe(c string) v1alpha1.Cluster {
	return v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: c}, Status: v1alpha1.ClusterStatus{Available: metav1.ConditionTrue, Version: "v1.36.3"}}
}

// fakeViews has views, and the clusters of each ManagedClusterSet. A view has the
// clusters that it names.
type fakeViews struct {
	sets map[string][]string

	mu    sync.Mutex
	views []*proxyv1alpha1.FleetView
}

// set replaces a view by a changed one: those that were handed out stay as they are.
func (f *fakeViews) set(name string, change func(*proxyv1alpha1.FleetView)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, v := range f.views {
		if v.Name == name {
			f.views[i] = v.DeepCopy()
			change(f.views[i])
		}
	}
}

func (f *fakeViews) Sets() ([]string, error) { return slices.Collect(maps.Keys(f.sets)), nil }
func (f *fakeViews) Containing(sets []string) func(cluster string) []string {
	return func(cluster string) []string {
		return slices.DeleteFunc(slices.Clone(sets), func(set string) bool { return !slices.Contains(f.sets[set], cluster) })
	}
}

func (f *fakeViews) InSet(cluster, set string) (bool, error) {
	if _, ok := f.sets[set]; !ok {
		return false, errors.New("there is no such set")
	}
	return slices.Contains(f.sets[set], cluster), nil
}

func (f *fakeViews) Get(name string) (*proxyv1alpha1.FleetView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.views {
		if v.Name == name {
			return v, nil
		}
	}
	return nil, nil
}

func (f *fakeViews) Names() (names []string) {
	for _, v := range f.views {
		names = append(names, v.Name)
	}
	return names
}

func (f *fakeViews) Clusters(v *proxyv1alpha1.FleetView) ([]string, error) {
	if len(v.Status.Conditions) > 0 {
		return nil, errors.New(v.Status.Conditions[0].Message)
	}
	return v.Spec.Clusters.Names, nil
}

// away is when cluster "away" was lost.
var away = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a proxy API, a proxy server behind it, and agents behind that.
type world struct {
	t              testing.TB
	dir            string
	hubCA, agentCA *pki.CA
	hub            *tunneltest.Hub
	api            *hubapi.Hub
	// cas are those of the hub's users and of its front proxy.
	cas   map[string]*pki.CA
	views *fakeViews
	// policies are none until a test uses some.
	policies *fakePolicies
	// known is what the hub knows of clusters.
	known scope.Clusters
	// registries and store are there with Options.KarmadaAPI.
	registries fakeRegistries
	store      *registryStore
	server     *Server
	url        string
	stop       context.CancelFunc
	stopped    chan error
}

// issue writes a certificate and the bundle it is used with to files.
func (w *world) issue(name string, ca *pki.CA, leaf pki.Leaf, bundle *pki.CA) pki.Files {
	w.t.Helper()
	return pkitest.Issue(w.t, filepath.Join(w.dir, name), ca, leaf, bundle)
}

func (w *world) file(name string, data []byte) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// peerLeaf is the certificate with which the proxy API is known.
func peerLeaf() pki.Leaf {
	return pki.Leaf{CommonName: string(identity.RoleProxyAPI), DNSNames: []string{identity.ProxyAPIPeerHost}, Client: true, Server: true}
}

func start(t testing.TB, change ...func(*Options)) *world {
	t.Helper()
	return startWith(t, func(*Server) {}, change...)
}

var threeClusters = fakeClusters{"cluster1": {}, "cluster2": {}, "away": away}

// startWith is start for a server that is prepared otherwise.
func startWith(t testing.TB, prepare func(*Server), change ...func(*Options)) *world {
	t.Helper()
	return startOf(t, threeClusters, prepare, change...)
}

// startOf is startWith for a hub with other clusters.
func startOf(t testing.TB, known scope.Clusters, prepare func(*Server), change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), known: known, policies: &fakePolicies{}, views: &fakeViews{sets: map[string][]string{"pair": {"cluster1", "cluster2"}, "third": {"cluster3"}}}, cas: map[string]*pki.CA{}, hubCA: pkitest.NewCA(t, "hub"), agentCA: pkitest.NewCA(t, "agents")}
	loopback := pki.Leaf{CommonName: "server", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}
	hubTLS := pkitest.Load(t, w.issue("proxy-server", w.hubCA, loopback, w.hubCA)).ServerConfig(tls.RequireAndVerifyClientCert)
	hubTLS.NextProtos = []string{"h2"}
	w.hub = tunneltest.StartTLS(t, hubTLS)
	client := w.issue("client", w.hubCA, peerLeaf(), w.hubCA)
	serving := w.issue("proxy-api", w.hubCA, loopback, w.hubCA)
	o := NewOptions()
	o.ProxyServer, o.HealthBindAddress, o.HealthPort = w.hub.Address(), "127.0.0.1", 0
	o.ProxyCACert, o.ProxyCert, o.ProxyKey = client.CA, client.Cert, client.Key
	o.AgentCACert = w.file("agent-ca.crt", w.agentCA.CertPEM())
	o.ServerCert, o.ServerKey = serving.Cert, serving.Key
	o.MinDrainDuration, o.GracefulShutdownTimeout = 0, 10*time.Second
	o.Namespace = "addons"
	o.AllowAnonymous = true // most tests are not about who asks
	for _, f := range change {
		f(o)
	}
	w.api = hubapi.Start(t, w.newCA("users"), w.newCA("front-proxy"))
	w.run(t, o, prepare)
	return w
}

// another starts one more replica of the proxy API in a world.
func (w *world) another(t testing.TB, change func(*Options)) *world {
	t.Helper()
	replica, o := *w, w.server.options
	change(&o)
	replica.run(t, &o, func(*Server) {})
	return &replica
}

// run runs the world's proxy API until the end of the test.
func (w *world) run(t testing.TB, o *Options, prepare func(*Server)) {
	t.Helper()
	var err error
	if w.server, err = New(o); err != nil {
		t.Fatal(err)
	}
	prepare(w.server)
	if err := w.server.load(); err != nil {
		t.Fatal(err)
	}
	parts, err := newParts(&w.server.options, w.server.metrics, w.api.Client(t), w.known, w.views, w.policies)
	if err != nil {
		t.Fatal(err)
	}
	if o.KarmadaAPI {
		w.store = newRegistryStore(t)
		parts.karmada = &scope.Karmada{Registries: &w.registries, Store: w.store.client(t), ControlPlane: o.KarmadaControlPlane}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.url = "https://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	w.stop, w.stopped = cancel, make(chan error, 1)
	go func() {
		w.stopped <- w.server.run(ctx, listener, parts)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-w.stopped; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		w.stopped <- nil
	})
}

// ended waits for the end of the proxy API before the test's.
func (w *world) ended() error {
	err := <-w.stopped
	w.stopped <- err
	return err
}

// client trusts the proxy API.
func (w *world) client(protocols ...string) *http.Client {
	config := pkitest.Load(w.t, pki.Files{CA: filepath.Join(w.dir, "proxy-api-ca.crt")}).ClientConfig("")
	transport := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols), MaxIdleConnsPerHost: 100}
	transport.Protocols.SetHTTP1(true)
	transport.Protocols.SetHTTP2(len(protocols) == 0)
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// newCA makes a CA of the hub, and the files of it.
func (w *world) newCA(name string) []byte {
	w.t.Helper()
	w.cas[name] = pkitest.NewCA(w.t, name)
	return w.cas[name].CertPEM()
}

func (w *world) handlerAddress(cluster string) string {
	return net.JoinHostPort(identity.HandlerHost(cluster), identity.HandlerPort)
}

// fakeAgent is an agent's handler.
type fakeAgent struct {
	server     *http.Server
	address    string
	handshakes atomic.Int32
}

// agent connects a cluster whose handler has the certificate of certificateOf.
func (w *world) agent(cluster string, handler http.Handler, certificateOf string) *fakeAgent {
	w.t.Helper()
	leaf := pki.Leaf{CommonName: identity.AgentCommonName(certificateOf), Organizations: identity.AgentOrganizations(certificateOf),
		DNSNames: []string{identity.HandlerHost(certificateOf)}, Server: true, Client: true}
	config := pkitest.Load(w.t, w.issue("agent-"+cluster, w.agentCA, leaf, w.hubCA)).ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	a := &fakeAgent{}
	a.server = &http.Server{Handler: handler, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				a.handshakes.Add(1)
			}
		}}
	if err := httprelay.ConfigureServer(a.server, 1000); err != nil { // as agents do
		w.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	a.address = listener.Addr().String()
	go func() { _ = a.server.ServeTLS(listener, "", "") }()
	w.t.Cleanup(func() { a.server.Close() })
	w.hub.Forward(w.handlerAddress(cluster), listener.Addr().String())
	return a
}
