package proxyserver

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// memListener gives connections of net.Pipe, so that time can be a test's own.
type memListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemListener() *memListener {
	return &memListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *memListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// partitioned is a connection whose packets vanish once cut is closed, without
// an error to anybody.
type partitioned struct {
	net.Conn
	cut chan struct{}
}

func (p *partitioned) Write(b []byte) (int, error) {
	select {
	case <-p.cut:
		return len(b), nil
	default:
		return p.Conn.Write(b)
	}
}

// TestPartitionedAgentLeavesRouting cuts an agent off without a RST: its control session
// is silent and TCP has nothing to say. It must be out of routing within 45 s,
// and not while it only has nothing to do.
func TestPartitionedAgentLeavesRouting(t *testing.T) {
	for name, connect := range map[string]func(*memServer, chan struct{}) (ended func()){
		"stream": func(s *memServer, cut chan struct{}) func() {
			return s.memStream("cluster1", cut)
		},
		"control carrier": func(s *memServer, cut chan struct{}) func() {
			a := s.memControl("cluster1", cut)
			return func() {
				<-a.gone
				// The server gives up in the same moment, and may be first.
				if code := carrier.CodeOf(a.err); code != carrier.TimedOut && code != carrier.CutOff {
					s.hub.t.Errorf("the agent's session ended with %v, want that the server does not answer", a.err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s, stop := newMemHub(t, dir).start("server-0")
				defer stop()
				cut := make(chan struct{})
				ended := connect(s, cut)
				time.Sleep(10 * time.Minute)
				if !s.registry.knows("cluster1:443") {
					t.Fatal("a healthy agent left routing")
				}
				close(cut)
				began := time.Now()
				for s.registry.knows("cluster1:443") && time.Since(began) < time.Hour {
					time.Sleep(time.Second)
				}
				if gone := time.Since(began); gone > 45*time.Second {
					t.Errorf("a partitioned agent was routed to for %s, want 45s at most", gone)
				}
				ended()
			})
		})
	}
}

// memStream is a konnectivity stream over memory, whose packets vanish once cut is closed.
// The function it returns ends it.
func (s *memServer) memStream(cluster string, cut chan struct{}) (end func()) {
	t := s.hub.t
	t.Helper()
	files := pkitest.Issue(t, filepath.Join(s.hub.dir, s.options.ServerID+"-"+cluster), s.hub.agentCA, pki.Leaf{CommonName: identity.AgentCommonName(cluster), Client: true}, s.hub.hubCA)
	source := pki.NewReloader(files)
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(credentials.NewTLS(source.ClientConfig("127.0.0.1"))),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return s.agents.dial(cut), nil }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ctx = metadata.AppendToOutgoingContext(ctx, header.AgentID, "agent",
		header.AgentIdentifiers, identity.Identifiers(identity.Hosts(cluster, identity.DefaultAgentNamespace)))
	stream, err := agent.NewAgentServiceClient(conn).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if received, err := stream.Header(); err != nil || len(received.Get(agentapi.CarriersHeader)) == 0 {
		t.Fatalf("header %v, %v; want one that announces carriers", received, err)
	}
	return func() { cancel(); _ = conn.Close(); _ = s.agents.Close() }
}
