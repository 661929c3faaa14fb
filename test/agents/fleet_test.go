package agents

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/scrape"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

func TestMain(m *testing.M) {
	// A thousand processes' logs in one are of no use.
	klog.SetLogger(logr.Discard())
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	if raw := os.Getenv(childEnv); raw != "" {
		os.Exit(runChild(raw))
	}
	// klog flushes for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// testTimeout is long, since a machine may be busy with other tests.
const testTimeout = 3 * time.Minute

// hub is the CAs and the load balancers of a hub.
type hub struct {
	t              testing.TB
	dir            string
	hubCA, agentCA *pki.CA
	peers          []string // client ports that servers may have
	taken          int
	agents         *balancer
	clients        *balancer
	clientSource   *pki.Reloader
	servers        []*server
	agentFiles     map[string]pki.Files // by cluster
}

func newHub(t testing.TB, servers int) *hub {
	t.Helper()
	h := &hub{t: t, dir: t.TempDir(), hubCA: pkitest.NewCA(t, "hub"), agentCA: pkitest.NewCA(t, "agents"), agents: newBalancer(t), clients: newBalancer(t), agentFiles: map[string]pki.Files{}}
	for range servers {
		h.peers = append(h.peers, net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Take(t))))
	}
	h.issue("server", h.hubCA, h.hubCA, pki.Leaf{CommonName: string(identity.RolePeer), IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Client: true})
	h.issue("server-agents", h.hubCA, h.agentCA, pki.Leaf{CommonName: "proxy-server", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	h.clientSource = pkitest.NewReloader(t, h.hubCA, pki.Leaf{CommonName: string(identity.RoleClient), Client: true}, h.hubCA)
	return h
}

func (h *hub) issue(name string, ca, trusted *pki.CA, leaf pki.Leaf) pki.Files {
	h.t.Helper()
	return pkitest.Issue(h.t, filepath.Join(h.dir, name), ca, leaf, trusted)
}

func portOf(t testing.TB, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// process is a server or an agent that runs until stop, which is its SIGTERM. One that ends with
// an error fails the test.
type process struct {
	stop context.CancelFunc
	done chan struct{}
	err  error
}

func run(t testing.TB, f func(context.Context) error) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = f(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if <-p.done; p.err != nil {
			t.Errorf("a process ended: %v", p.err)
		}
	})
	return p
}

type server struct {
	*process
	*proxyserver.Server
	options *proxyserver.Options
}

// startServer starts one and puts it behind the load balancers.
func (h *hub) startServer(change func(*proxyserver.Options)) *server {
	h.t.Helper()
	path := func(name string) string { return filepath.Join(h.dir, name) }
	o := proxyserver.NewOptions()
	o.ServerCert, o.ServerKey, o.ServerCACert = path("server.crt"), path("server.key"), path("server-ca.crt")
	o.ClusterCert, o.ClusterKey, o.ClusterCACert = path("server-agents.crt"), path("server-agents.key"), path("server-agents-ca.crt")
	o.ServerBindAddress, o.AgentBindAddress, o.HealthBindAddress = "127.0.0.1", "127.0.0.1", "127.0.0.1"
	o.AgentPort, o.HealthPort, o.AdminPort = 0, 0, 0
	o.ServerPort = portOf(h.t, h.peers[h.taken])
	o.ServerID = fmt.Sprint("server-", h.taken)
	h.taken++
	if len(h.peers) > 1 {
		o.Peers = h.peers
	}
	o.GracefulShutdownTimeout = 0
	if change != nil {
		change(o)
	}
	made, err := proxyserver.New(o)
	if err != nil {
		h.t.Fatal(err)
	}
	s := &server{process: run(h.t, made.Run), Server: made, options: o}
	select {
	case <-made.Started():
	case <-s.done:
		h.t.Fatalf("the proxy server ended: %v", s.err)
	}
	h.agents.add(made.Addrs().Agent.String())
	h.clients.add(made.Addrs().Client.String())
	h.servers = append(h.servers, s)
	return s
}

// waitForAgents waits until n agents with carriers are on every server.
func (h *hub) waitForAgents(n int) {
	h.t.Helper()
	for _, s := range h.servers {
		calmly.Until(h.t, fmt.Sprintf("%s has %d agents", s.options.ServerID, n), func() bool {
			return s.metric(h.t, "cluster_proxy_server_agents", `speaks="carriers"`) >= float64(n)
		})
	}
}

// soleCluster is the one that a oneTunnel leads to.
const soleCluster = "127.1.0.1"

// oneTunnel is a hub of one server, and a cluster of one agent. Connections of
// dial come to the server through the hub's balancer, which can cut them.
type oneTunnel struct {
	*hub
	server *server
	target *target
	dial   dialFunc
}

func startOneTunnel(t *testing.T) *oneTunnel {
	t.Helper()
	h := newHub(t, 1)
	w := &oneTunnel{hub: h, target: newTarget(t), server: h.startServer(nil), dial: h.dialer(h.clients.address()).DialContext}
	h.startAgent(soleCluster, "agent", w.server.Addrs().Agent.String(), nil)
	h.mustReach(w.dial, w.target, soleCluster)
	return w
}

// retire does what Kubernetes does to a pod: SIGTERM, and at about the same time
// it leaves the load balancers.
func (h *hub) retire(s *server) {
	h.agents.remove(s.Addrs().Agent.String())
	h.clients.remove(s.Addrs().Client.String())
	s.stop()
}

type agent struct {
	*process
}

// startAgent starts a plain agent of a cluster that dials address.
func (h *hub) startAgent(cluster, id, address string, change func(*proxyagent.Options)) *agent {
	h.t.Helper()
	o := agentOptions(h.issueAgent(cluster), cluster, id, portOf(h.t, address))
	if change != nil {
		change(o)
	}
	made, err := proxyagent.New(o)
	if err != nil {
		h.t.Fatal(err)
	}
	return &agent{run(h.t, made.Run)}
}

// issueAgent returns the certificate that all agents of a cluster share. An agent that has just
// been started may still read it.
func (h *hub) issueAgent(cluster string) pki.Files {
	h.t.Helper()
	files, ok := h.agentFiles[cluster]
	if !ok {
		files = h.issue("agent-"+cluster, h.agentCA, h.hubCA, pki.Leaf{CommonName: identity.AgentCommonName(cluster), Client: true})
		h.agentFiles[cluster] = files
	}
	return files
}

func agentOptions(files pki.Files, cluster, id string, port int) *proxyagent.Options {
	o := proxyagent.NewOptions()
	o.AgentID, o.AgentIdentifiers = id, identity.Identifiers([]string{cluster})
	o.AgentCert, o.AgentKey, o.CACert = files.Cert, files.Key, files.CA
	o.ProxyServerHost, o.ProxyServerPort = "127.0.0.1", port
	o.HealthServerHost, o.HealthServerPort = "127.0.0.1", 0
	o.AdminBindAddress, o.AdminServerPort = "127.0.0.1", 0
	o.GracefulShutdownTimeout, o.MinDrainDuration = 0, 0
	return o
}

func (h *hub) dialer(address string) *tunnel.Dialer {
	d := &tunnel.Dialer{ProxyServer: address, TLS: func() *tls.Config { return h.clientSource.ClientConfig("127.0.0.1") }}
	h.t.Cleanup(func() { _ = d.Close() })
	return d
}

// eventually waits for what other goroutines do.
var eventually = wait.Poll{Every: 10 * time.Millisecond, For: testTimeout}.Until

// calmly waits for agents that have a server and look for further ones. They dial once in 90 s,
// and a dial in two or four leads to a server that they have: of a hundred agents one needs
// more than five minutes.
var calmly = wait.Poll{Every: 200 * time.Millisecond, For: 5 * testTimeout}

// metric is the sum of a server's metric over all labels that contain with.
func (s *server) metric(t testing.TB, name, with string) float64 {
	t.Helper()
	sum, err := scrape.Metric(t.Context(), s.Addrs().Health.String(), name, with)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// balancer spreads TCP connections over its backends in turn.
type balancer struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	backends []string
	next     int
	open     map[net.Conn]string // both sides of every connection, by backend
}

func newBalancer(t testing.TB) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: listener, open: map[net.Conn]string{}}
	b.wg.Go(b.serve)
	t.Cleanup(b.close)
	return b
}

func (b *balancer) close() {
	_ = b.listener.Close()
	b.cut("")
	b.wg.Wait()
}

func (b *balancer) address() string { return b.listener.Addr().String() }

func (b *balancer) add(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, backend)
}

func (b *balancer) remove(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.backends {
		if other == backend {
			b.backends = append(b.backends[:i:i], b.backends[i+1:]...)
		}
	}
}

// cut resets the connections to a backend, as a process that is killed does; ""
// stands for all.
func (b *balancer) cut(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn, to := range b.open {
		if backend == "" || to == backend {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
}

func (b *balancer) serve() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.wg.Go(func() { b.forward(conn) })
	}
}

func (b *balancer) forward(client net.Conn) {
	defer client.Close()
	b.mu.Lock()
	if len(b.backends) == 0 {
		b.mu.Unlock()
		return
	}
	to := b.backends[b.next%len(b.backends)]
	b.next++
	b.mu.Unlock()
	backend, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer backend.Close()
	b.mu.Lock()
	b.open[client], b.open[backend] = to, to
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.open, client)
		delete(b.open, backend)
		b.mu.Unlock()
	}()
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{client: backend, backend: client} {
		both.Go(func() {
			// Not *net.TCPConn: splicing in the kernel takes two pipes each.
			_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
			_ = to.(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}
