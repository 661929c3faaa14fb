package proxyserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
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

// fakeAgent speaks konnectivity's agent protocol. It accepts every dial and
// answers each packet with its name and the packet's data.
type fakeAgent struct {
	name   string
	stream agent.AgentService_ConnectClient
	seen   chan *client.Packet // DIAL_REQs, and what is said about servers
	gone   chan struct{}
}

type agentSpec struct {
	cluster     string // in the certificate
	ca          *pki.CA
	id          string // declared; "agent" if empty
	identifiers string // declared; the cluster's own if empty
	name        string // the cluster if empty
	manual      bool   // the test answers dials
	process     string // the secret of its process
	opens       bool   // its control session takes an OPEN
	full        bool   // it has no memory for more connections
	meantFor    string // the only server that its control session is for, if any
}

func (h *testHub) connectAgent(t *testing.T, spec agentSpec) (*fakeAgent, error) {
	t.Helper()
	if spec.ca == nil {
		spec.ca = h.agentCA
	}
	return h.connectAgentTLS(t, spec, h.tlsFor(t, spec.ca, identity.AgentCommonName(spec.cluster)))
}

func (h *testHub) connectAgentTLS(t *testing.T, spec agentSpec, config *tls.Config) (*fakeAgent, error) {
	t.Helper()
	if spec.id == "" {
		spec.id = "agent"
	}
	if spec.identifiers == "" {
		spec.identifiers = identity.Identifiers(identity.Hosts(spec.cluster, identity.DefaultAgentNamespace))
	}
	if spec.name == "" {
		spec.name = spec.cluster
	}
	conn, err := grpc.NewClient(h.Addrs().Agent.String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ctx = metadata.AppendToOutgoingContext(ctx, header.AgentID, spec.id, header.AgentIdentifiers, spec.identifiers)
	if spec.process != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, agentapi.ProcessHeader, spec.process)
	}
	stream, err := agent.NewAgentServiceClient(conn).Connect(ctx)
	if err != nil {
		return nil, err
	}
	if received, err := stream.Header(); err != nil || len(received.Get(header.ServerID)) == 0 {
		_, err = stream.Recv()
		return nil, err
	}
	a := &fakeAgent{name: spec.name, stream: stream, seen: make(chan *client.Packet, 64), gone: make(chan struct{})}
	go a.serve(spec.manual)
	t.Cleanup(func() { cancel(); <-a.gone })
	return a, nil
}

// mustConnect also waits until dials are routed to the agent.
func (h *testHub) mustConnect(t *testing.T, spec agentSpec) *fakeAgent {
	t.Helper()
	before := h.backends()
	a, err := h.connectAgent(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is registered", func() bool { return h.backends() > before })
	return a
}

// backends counts agents' streams.
func (h *testHub) backends() int {
	manager := h.konnectivity.BackendManagers[0].(*balancedManager)
	manager.mu.RLock()
	defer manager.mu.RUnlock()
	count := 0
	for _, group := range manager.groups {
		count += len(group)
	}
	return count
}

func (a *fakeAgent) serve(manual bool) {
	defer close(a.gone)
	for next := int64(1); ; {
		packet, err := a.stream.Recv()
		if err != nil {
			return
		}
		switch packet.Type {
		case client.PacketType_DIAL_REQ:
			a.seen <- packet
			if !manual {
				a.accept(packet.GetDialRequest().Random, next)
				next++
			}
		case agentapi.ServerCount:
			a.seen <- packet
		case client.PacketType_DATA:
			data := packet.GetData()
			a.data(data.ConnectID, fmt.Sprintf("%s:%s", a.name, data.Data))
		case client.PacketType_CLOSE_REQ:
			_ = a.stream.Send(&client.Packet{Type: client.PacketType_CLOSE_RSP, Payload: &client.Packet_CloseResponse{
				CloseResponse: &client.CloseResponse{ConnectID: packet.GetCloseRequest().ConnectID}}})
		}
	}
}

func (a *fakeAgent) accept(random, connectID int64) {
	_ = a.stream.Send(&client.Packet{Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{
		DialResponse: &client.DialResponse{Random: random, ConnectID: connectID}}})
}

func (a *fakeAgent) data(connectID int64, data string) {
	_ = a.stream.Send(&client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{
		Data: &client.Data{ConnectID: connectID, Data: []byte(data)}}})
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

func wantDenied(t *testing.T, what string, err error) {
	t.Helper()
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("%s: %v, want PermissionDenied", what, err)
	}
}
