package proxyserver

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

const testTimeout = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testHub is a running Server with its two CAs.
type testHub struct {
	*Server
	dir            string
	hubCA, agentCA *pki.CA
	stop           context.CancelFunc
	done           chan struct{}
	result         error
	clientAddr     string
}

var servingLeaf = pki.Leaf{CommonName: string(identity.RolePeer), DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Client: true}

// startHub runs a Server on free ports in certificate mode until the test ends.
func startHub(t *testing.T, change ...func(*Options)) *testHub {
	t.Helper()
	return startHubWith(t, pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "agents"), change...)
}

func startHubWith(t *testing.T, hubCA, agentCA *pki.CA, change ...func(*Options)) *testHub {
	t.Helper()
	return startPreparedHub(t, hubCA, agentCA, func(*Server) {}, change...)
}

// startPreparedHub has prepare change the Server before it runs.
func startPreparedHub(t *testing.T, hubCA, agentCA *pki.CA, prepare func(*Server), change ...func(*Options)) *testHub {
	t.Helper()
	h := &testHub{dir: t.TempDir(), hubCA: hubCA, agentCA: agentCA, done: make(chan struct{})}
	clients := pkitest.Issue(t, filepath.Join(h.dir, "server"), h.hubCA, servingLeaf, h.hubCA)
	agents := pkitest.Issue(t, filepath.Join(h.dir, "agent"), h.hubCA, servingLeaf, h.agentCA)
	o := NewOptions()
	o.ServerCert, o.ServerKey, o.ServerCACert = clients.Cert, clients.Key, clients.CA
	o.ClusterCert, o.ClusterKey, o.ClusterCACert = agents.Cert, agents.Key, agents.CA
	o.ServerPort, o.AgentPort, o.HealthPort, o.AdminPort = 0, 0, 0, 0
	o.ServerBindAddress, o.AgentBindAddress, o.HealthBindAddress = "127.0.0.1", "127.0.0.1", "127.0.0.1"
	o.GracefulShutdownTimeout, o.MinDrainDuration = 0, 0
	for _, c := range change {
		c(o)
	}
	var err error
	if h.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	prepare(h.Server)
	var ctx context.Context
	ctx, h.stop = context.WithCancel(t.Context())
	go func() { h.result = h.Run(ctx); close(h.done) }()
	t.Cleanup(func() { h.stop(); <-h.done })
	select {
	case <-h.Started():
	case <-h.done:
		t.Fatalf("Run = %v before it has started", h.result)
	}
	h.clientAddr = h.Addrs().Client.String()
	return h
}

// tlsFor is the TLS configuration of a peer with a certificate of ca.
func (h *testHub) tlsFor(t *testing.T, ca *pki.CA, commonName string) *tls.Config {
	t.Helper()
	return pkitest.NewReloader(t, ca, pki.Leaf{CommonName: commonName, Client: true}, h.hubCA).ClientConfig("127.0.0.1")
}

func (h *testHub) clientTLS(t *testing.T) *tls.Config {
	return h.tlsFor(t, h.hubCA, string(identity.RoleClient))
}

// carrier dials one to the port for clients, as who config says.
func (h *testHub) carrier(t *testing.T, config *tls.Config) *carrier.Carrier {
	t.Helper()
	config.NextProtos = []string{carrier.ALPN}
	conn, err := tls.Dial("tcp", h.clientAddr, config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := carrier.Dialed(t.Context(), conn, carrier.Hello{}, carrier.Config{Role: carrier.Opener})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dial opens a connection to address through h, as a client with config.
func (h *testHub) dial(t *testing.T, config *tls.Config, address string) (net.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	tunnel, err := konnectivity.CreateSingleUseGrpcTunnel(ctx, h.clientAddr, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", address)
}

func (h *testHub) scrape(t *testing.T, path string) (int, string) {
	t.Helper()
	return scrapePort(t, h.Addrs().Health, path)
}

func scrapePort(t *testing.T, port net.Addr, path string) (int, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Get("http://" + port.String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// eventually waits for a condition that another goroutine makes true.
var eventually = wait.Poll{Every: 5 * time.Millisecond, For: testTimeout}.Until

type agentSpec struct {
	cluster     string // in the certificate
	ca          *pki.CA
	id          string // declared; "agent" if empty
	identifiers string // declared; the cluster's own if empty
	name        string // the cluster if empty
	process     string // the secret of its process
	opens       bool   // its control session takes an OPEN
	full        bool   // it has no memory for more connections
	meantFor    string // the only server that its control session is for, if any
}

// exchange writes text and returns what the agent answers.
func exchange(t *testing.T, conn io.ReadWriter, text, want string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Errorf("exchange = %q, %v; want %q", got, err, want)
	}
}

// mustConnect makes an agent that has carriers as it is asked for them.
func (h *testHub) mustConnect(t *testing.T, spec agentSpec) *controlAgent {
	t.Helper()
	return h.carrierAgent(t, spec, 0)
}
