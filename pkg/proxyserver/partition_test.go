package proxyserver

import (
	"context"
	"crypto/tls"
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

// TestPartitionedAgentLeavesRouting cuts an agent off without a RST: its stream
// is silent and TCP has nothing to say. It must be out of routing within 45 s,
// and not while it only has nothing to do.
func TestPartitionedAgentLeavesRouting(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hubCA, agentCA := pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "agents")
		files := pkitest.Issue(t, filepath.Join(dir, "server"), hubCA, servingLeaf, agentCA)
		o := NewOptions()
		o.ClusterCert, o.ClusterKey, o.ClusterCACert = files.Cert, files.Key, files.CA
		o.ServerCert, o.ServerKey, o.ServerCACert = files.Cert, files.Key, files.CA
		o.AgentIdentity = IdentityCertificate
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.agentSource.Load(); err != nil {
			t.Fatal(err)
		}
		listener := newMemListener()
		ports := &ports{agent: listener}
		agents := s.newAgentServer(ports)
		go ports.muxes[0].serve()
		go func() { _ = agents.Serve(ports.agent) }()
		defer agents.Stop()

		client := pkitest.Issue(t, filepath.Join(dir, "agent"), agentCA, pki.Leaf{CommonName: identity.AgentCommonName("cluster1"), Client: true}, hubCA)
		source := pki.NewReloader(client)
		if err := source.Load(); err != nil {
			t.Fatal(err)
		}
		config := source.ClientConfig("127.0.0.1")
		stream, cut, closeAgent := partitionableAgent(t, listener, config)
		defer closeAgent()
		if received, err := stream.Header(); err != nil || len(received.Get(agentapi.CarriersHeader)) == 0 {
			t.Fatalf("header %v, %v; want one that announces carriers", received, err)
		}
		synctest.Wait()
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
		} else {
			t.Logf("out of routing after %s", gone)
		}
	})
}

// partitionableAgent connects over memory; the channel cuts both directions.
func partitionableAgent(t *testing.T, listener *memListener, config *tls.Config) (agent.AgentService_ConnectClient, chan struct{}, func()) {
	t.Helper()
	cut := make(chan struct{})
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			listener.conns <- &partitioned{far, cut}
			return &partitioned{near, cut}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ctx = metadata.AppendToOutgoingContext(ctx, header.AgentID, "agent",
		header.AgentIdentifiers, identity.Identifiers(identity.Hosts("cluster1", identity.DefaultAgentNamespace)))
	stream, err := agent.NewAgentServiceClient(conn).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream, cut, func() { cancel(); _ = conn.Close(); _ = listener.Close() }
}
