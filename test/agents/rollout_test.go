package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
)

// minDrain is longer than a connection is on its way to a process that has left the
// load balancer, on a machine that other tests use as well.
const minDrain = 3 * time.Second

// inService has a server wait for a busy machine: it is asked for every dial to
// succeed, not for one in time.
func inService(o *proxyserver.Options) {
	o.ServerCount, o.GracefulShutdownTimeout, o.MinDrainDuration = 3, testTimeout, minDrain
	o.DialTimeout, o.HandshakeTimeout = testTimeout, testTimeout
}

func agentInService(o *proxyagent.Options) {
	o.GracefulShutdownTimeout, o.MinDrainDuration = testTimeout, minDrain
	patientAgent(o)
}

func patientAgent(o *proxyagent.Options) {
	o.HandshakeTimeout, o.TargetDialTimeout = testTimeout, testTimeout
}

// patientDialer is a dialer whose dials may take as long as a busy machine makes
// them.
func (h *hub) patientDialer() *tunnel.Dialer {
	d := h.dialer(h.clients.address())
	d.DialTimeout = testTimeout
	return d
}

// dialLimit is how long a dial with its exchange may take where others leave the
// machine alone: as long as dials have.
const dialLimit = tunnel.DefaultDialTimeout

// loadInService has clients use clusters, with our dialers and konnectivity's client. Its end holds
// every dial to dialLimit, stretched by what others did on the machine meanwhile.
func (h *hub) loadInService(t *testing.T, s *target, clusters []string) (l *load, end func()) {
	t.Helper()
	before, err := measure()
	if err != nil {
		t.Fatal(err)
	}
	others := startNoise(t, before.Processor)
	l = startLoad(s, 6, time.Millisecond, []dialFunc{h.patientDialer().DialContext, h.patientDialer().DialContext, h.stockDial}, clusters)
	return l, func() {
		t.Helper()
		count := l.done.Load()
		eventually(t, "work goes on", func() bool { return l.done.Load() > count+20 })
		l.stop(t)
		own, err := measure()
		if err != nil {
			t.Fatal(err)
		}
		stretch := others.stretch(t, own.Processor)
		if worst, limit := slices.Max(l.take()), time.Duration(float64(dialLimit)*stretch); worst > limit {
			t.Errorf("an exchange took %s, want %s at most where others stretch times %.1f ×", worst, limit, stretch)
		}
	}
}

func (h *hub) startPatientAgents(clusters []string) (agents []*agent) {
	h.t.Helper()
	for _, cluster := range clusters {
		agents = append(agents, h.startAgent(cluster, "agent-"+cluster, h.agents.address(), patientAgent))
	}
	return agents
}

// stockDial dials as konnectivity's own client does, with a tunnel for each
// connection.
func (h *hub) stockDial(ctx context.Context, network, address string) (net.Conn, error) {
	tunnel, err := konnectivity.CreateSingleUseGrpcTunnel(ctx, h.clients.address(),
		grpc.WithTransportCredentials(credentials.NewTLS(h.clientSource.ClientConfig("127.0.0.1"))))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, network, address)
}

func (h *hub) mustReach(dial dialFunc, s *target, clusters ...string) {
	h.t.Helper()
	for _, cluster := range clusters {
		eventually(h.t, "cluster "+cluster+" can be reached", func() bool {
			ctx, cancel := context.WithTimeout(h.t.Context(), testTimeout/4)
			defer cancel()
			return s.exchange(ctx, dial, cluster, 1) == nil
		})
	}
}

// TestRollingRestartOfServers replaces three servers, one after the other, under
// load from our dialer and from konnectivity's client. No dial may fail, nor any
// connection be cut.
func TestRollingRestartOfServers(t *testing.T) {
	h := newHub(t, 6)
	s := newTarget(t)
	clusters := []string{"127.1.0.1", "127.1.0.2"}
	var servers []*server
	for range 3 {
		servers = append(servers, h.startServer(inService))
	}
	agents := h.startPatientAgents(clusters)
	d := h.patientDialer()
	h.mustReach(d.DialContext, s, clusters...)
	long := s.openLong(t, d.DialContext, clusters[0])
	l, end := h.loadInService(t, s, clusters)
	for _, old := range servers {
		before := l.done.Load()
		h.startServer(inService)
		h.retire(old)
		eventually(t, "work went on", func() bool { return l.done.Load() > before+20 })
		if err := long.ping(); err != nil {
			t.Errorf("a connection that was open before: %v", err)
		}
		if old == servers[len(servers)-1] {
			_ = long.Close() // somebody waits for it
		}
	}
	for _, old := range servers {
		select {
		case <-old.done:
		case <-time.After(testTimeout):
			t.Error("a server did not end after its last connection")
		}
	}
	end()
	for _, last := range agents {
		last.stop() // or the servers would wait for it to find others
	}
}

// TestOnlyServerIsReplaced replaces the only server, whose agents take their time
// to find the new one. No dial may fail meanwhile: the old server goes on until
// they have.
func TestOnlyServerIsReplaced(t *testing.T) {
	h := newHub(t, 2)
	s := newTarget(t)
	const cluster = "127.1.0.1"
	old := h.startServer(func(o *proxyserver.Options) {
		o.GracefulShutdownTimeout, o.MinDrainDuration = 20*time.Second, time.Millisecond
	})
	h.startAgent(cluster, "agent", h.agents.address(), nil)
	d := h.dialer(h.clients.address())
	h.mustReach(d.DialContext, s, cluster)
	l := startLoad(s, 2, time.Millisecond, []dialFunc{d.DialContext, h.dialer(h.clients.address()).DialContext}, []string{cluster})
	h.startServer(nil)
	h.retire(old)
	<-old.done
	before := l.done.Load()
	eventually(t, "work goes on", func() bool { return l.done.Load() > before+20 })
	l.stop(t)
}

// longConn is a connection that outlives restarts.
type longConn struct {
	net.Conn
	writer *carriertest.Writer
	sent   bytes.Buffer
}

func (s *target) openLong(t *testing.T, dial dialFunc, cluster string) *longConn {
	t.Helper()
	conn, err := dial(t.Context(), "tcp", s.address(cluster))
	if err != nil {
		t.Fatal(err)
	}
	label := cluster + "/long"
	if _, err := conn.Write(append([]byte{byte(len(label))}, label...)); err != nil {
		t.Fatal(err)
	}
	c := &longConn{Conn: conn}
	c.writer = carriertest.NewWriter(&c.sent, label)
	return c
}

// ping sends a record and wants it back.
func (c *longConn) ping() error {
	c.sent.Reset()
	if err := c.writer.WriteRecord(1000); err != nil {
		return err
	}
	if _, err := c.Write(c.sent.Bytes()); err != nil {
		return err
	}
	got := make([]byte, c.sent.Len())
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, c.sent.Bytes()) {
		return errors.New("another record came back")
	}
	return nil
}

// TestRollingRestartOfAgents replaces both agents of a cluster.
func TestRollingRestartOfAgents(t *testing.T) {
	h := newHub(t, 2)
	s := newTarget(t)
	const cluster = "127.1.0.1"
	two := func(o *proxyserver.Options) { inService(o); o.ServerCount = 2 }
	h.startServer(two)
	h.startServer(two)
	var agents []*agent
	for i := range 2 {
		agents = append(agents, h.startAgent(cluster, fmt.Sprint("old-", i), h.agents.address(), agentInService))
	}
	d := h.dialer(h.clients.address())
	h.mustReach(d.DialContext, s, cluster)
	l := startLoad(s, 6, time.Millisecond, []dialFunc{d.DialContext, h.stockDial}, []string{cluster})
	for i, old := range agents {
		before := l.done.Load()
		h.startAgent(cluster, fmt.Sprint("new-", i), h.agents.address(), agentInService)
		h.waitForAgents(3)
		old.stop()
		eventually(t, "work went on", func() bool { return l.done.Load() > before+20 })
		<-old.done
	}
	l.stop(t)
}

// TestKilled resets every connection of one of two agents, and of one of two
// servers. Streams that were open on it end with an error and not as if they were
// complete; new dials find the other one.
func TestKilled(t *testing.T) {
	for _, who := range []string{"agent", "server"} {
		t.Run(who, func(t *testing.T) {
			h := newHub(t, 2)
			s := newTarget(t)
			const cluster = "127.1.0.1"
			two := func(o *proxyserver.Options) { o.ServerCount = 2 }
			first, second := h.startServer(two), h.startServer(two)
			victims := newBalancer(t) // the way of the agent that dies
			victims.add(first.Addrs().Agent.String())
			victims.add(second.Addrs().Agent.String())
			h.startAgent(cluster, "victim", victims.address(), nil)
			d := h.dialer(h.clients.address())
			h.mustReach(d.DialContext, s, cluster)
			open, err := d.DialContext(t.Context(), "tcp", s.address(cluster))
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			h.startAgent(cluster, "survivor", h.agents.address(), nil)
			h.waitForAgents(2)
			if who == "agent" {
				_ = victims.listener.Close()
				victims.cut("")
			} else {
				for _, b := range []*balancer{victims, h.agents} {
					b.remove(first.Addrs().Agent.String())
					b.cut(first.Addrs().Agent.String())
				}
				h.clients.remove(first.Addrs().Client.String())
				h.clients.cut(first.Addrs().Client.String())
				h.clients.cut(second.Addrs().Client.String()) // open may be there
			}
			if _, err := open.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the connection that was open ended with %v, want an error that is no end of file", err)
			}
			for range 20 {
				if err := s.exchange(t.Context(), d.DialContext, cluster, 1); err != nil {
					t.Errorf("a new dial: %v", err)
				}
			}
		})
	}
}
