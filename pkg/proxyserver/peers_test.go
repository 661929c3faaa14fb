package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/liveness"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	testports "open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

// startPeers runs servers of one hub that know each other and themselves.
func startPeers(t *testing.T, n int, change ...func(*Options)) []*testHub {
	t.Helper()
	return startPeersBeside(t, n, nil, change...)
}

// startPeersBeside runs servers that know other addresses, too.
func startPeersBeside(t *testing.T, n int, others []string, change ...func(*Options)) []*testHub {
	t.Helper()
	hubCA, agentCA := pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "agents")
	var own []int
	addresses := slices.Clone(others)
	for i := range n {
		own = append(own, testports.Take(t))
		addresses = append(addresses, fmt.Sprint("127.0.0.1:", own[i]))
	}
	var hubs []*testHub
	for i := range n {
		hubs = append(hubs, startHubWith(t, hubCA, agentCA, append(change, func(o *Options) {
			o.ServerID, o.Peers = fmt.Sprint("server-", i), addresses
			o.ServerPort = own[i]
		})...))
	}
	return hubs
}

func (h *testHub) dialer(t *testing.T) *tunnel.Dialer {
	t.Helper()
	config := h.clientTLS(t)
	d := &tunnel.Dialer{ProxyServer: h.clientAddr, TLS: func() *tls.Config { return config.Clone() }}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// carrierAgent makes an agent with a control session and n carriers, which dials more as it is
// asked for them. They echo with the agent's name.
func (h *testHub) carrierAgent(t *testing.T, spec agentSpec, n int) *controlAgent {
	t.Helper()
	if spec.id == "" {
		spec.id = "agent"
	}
	if spec.name == "" {
		spec.name = spec.cluster
	}
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName(spec.cluster))
	before := h.registry.stats()
	a, err := h.connectControlTLS(t, spec, config)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := h.echoCarrier(t, spec, config); err != nil {
			t.Fatal(err)
		}
	}
	// The server answers before it takes them over.
	eventually(t, "the agent and its carriers are there", func() bool {
		now := h.registry.stats()
		return h.registry.knows(spec.cluster+":443") && now.Idle+now.InUse >= before.Idle+before.InUse+n
	})
	var dialing sync.WaitGroup
	dialing.Go(func() {
		for {
			select {
			case m := <-a.got:
				for i := uint64(0); m.Kind == agentapi.MoreCarriers && i < m.Number; i++ {
					_ = h.echoCarrier(t, spec, config) // the server may end
				}
			case <-a.gone:
				return
			}
		}
	})
	t.Cleanup(func() { _ = a.Carrier().Close(); dialing.Wait() })
	return a
}

// echoCarrier makes a carrier of an agent.
func (h *testHub) echoCarrier(t *testing.T, spec agentSpec, config *tls.Config) error {
	conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), carrierTLS(config))
	if err != nil {
		return err
	}
	c, err := carrier.Dialed(context.Background(), conn, carrier.Hello{Session: spec.id},
		carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(spec.echo)})
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = c.Close() })
	if c.PeerName() != h.options.ServerID {
		t.Errorf("the carrier's peer is %q, want %q", c.PeerName(), h.options.ServerID)
	}
	return nil
}

// echo accepts a connection and answers what comes with the agent's name before it.
func (spec agentSpec) echo(_ context.Context, p *carrier.Pending) {
	switch {
	case spec.full:
		_ = p.Refuse(&carrier.Error{Code: carrier.Overloaded, Message: "no memory"})
		return
	case strings.HasPrefix(p.Address, spec.cluster+":99"):
		_ = p.Refuse(&carrier.Error{Code: carrier.Denied, Message: "not that one, via " + p.Via})
		return
	case p.Address == spec.cluster+":98":
		_ = p.Refuse(&carrier.Error{Code: carrier.Draining, Message: "the agent stops"})
		return
	}
	cn, err := p.Accept(carrier.Endpoints{Local: "10.0.0.1:1", Remote: "10.0.0.2:2"})
	if err != nil {
		return
	}
	buf := make([]byte, 1024)
	for {
		n, err := cn.Read(buf)
		if err != nil {
			_ = cn.Close()
			return
		}
		_, _ = fmt.Fprintf(cn, "%s:%s", spec.name, buf[:n])
	}
}

func TestPeersServeEachOthersClusters(t *testing.T) {
	hubs := startPeers(t, 3)
	hubs[0].carrierAgent(t, agentSpec{cluster: "carriers", name: "carriers"}, 4)
	hubs[1].mustConnect(t, agentSpec{cluster: "stock", name: "stock"})
	for _, cluster := range []string{"carriers", "stock"} {
		for i, h := range hubs {
			t.Run(fmt.Sprint(cluster, " through ", i), func(t *testing.T) {
				conn, err := h.dialer(t).DialContext(t.Context(), "tcp", cluster+":443")
				if err != nil {
					t.Fatal(err)
				}
				exchange(t, conn, "ours", cluster+":ours")
				_ = conn.Close()
				stock, err := h.dial(t, h.clientTLS(t), cluster+":443")
				if err != nil {
					t.Fatal(err)
				}
				exchange(t, stock, "stock", cluster+":stock")
				_ = stock.Close()
			})
		}
	}
	if _, body := hubs[2].scrape(t, "/metrics"); !strings.Contains(body, `cluster_proxy_server_dials_total{result="ok",via="peer"} 4`) {
		t.Error("the dials that were sent on are not counted")
	}
}

func TestPeersKeepTheMeaningOfErrors(t *testing.T) {
	hubs := startPeers(t, 2)
	hubs[0].carrierAgent(t, agentSpec{cluster: "cluster1"}, 2)
	var failure *tunnel.Error
	d := hubs[1].dialer(t)
	if _, err := d.DialContext(t.Context(), "tcp", "cluster1:99"); !errors.As(err, &failure) || failure.Code != tunnel.Denied || !strings.Contains(failure.Error(), "via server-1") {
		t.Errorf("denied by the agent of a peer: %v", err)
	}
	began := time.Now()
	if _, err := d.DialContext(t.Context(), "tcp", "cluster2:443"); !errors.As(err, &failure) || failure.Code != tunnel.NoAgent {
		t.Errorf("no agent anywhere: %v, want NoAgent", err)
	}
	if elapsed := time.Since(began); elapsed > peerHedgeAfter {
		t.Errorf("that took %s, want %s at most", elapsed, peerHedgeAfter)
	}
	if _, err := hubs[1].dial(t, hubs[1].clientTLS(t), "cluster2:443"); err == nil || !strings.Contains(err.Error(), errNoAgent.Message) {
		t.Errorf("no agent anywhere, konnectivity's client: %v", err)
	}
}

// TestSilentPeerDoesNotHoldUpNoAgent has a peer that takes connections and says nothing, as a pod
// whose node is gone does. While it is waited for, the others may be asked again; a dial that nobody
// has an agent for ends with the silent one's time all the same, and not with its own.
func TestSilentPeerDoesNotHoldUpNoAgent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	hubs := startPeersBeside(t, 2, []string{silent.Addr().String()})
	var failure *tunnel.Error
	if _, err := hubs[1].dialer(t).DialContext(t.Context(), "tcp", "cluster2:443"); !errors.As(err, &failure) || failure.Code != tunnel.NoAgent {
		t.Errorf("no agent anywhere: %v, want NoAgent", err)
	}
}

// TestADialIsSentOnOnce gives two servers a cluster that neither has: if a peer
// sent the dial on, it would go round.
func TestADialIsSentOnOnce(t *testing.T) {
	hubs := startPeers(t, 2)
	c := hubs[0].carrier(t, hubs[0].tlsFor(t, hubs[0].hubCA, string(identity.RolePeer)))
	defer c.Close()
	hubs[1].carrierAgent(t, agentSpec{cluster: "cluster1"}, 2)
	if _, err := c.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:443", Hops: 1}); carrier.CodeOf(err) != carrier.NoAgent {
		t.Errorf("a dial that was sent on already: %v, want no agent", err)
	}
}

// TestPeersNeedTheRole shows a peer that presents an agent's or a serving
// certificate: port 8090 is not for it.
func TestPeersNeedTheRole(t *testing.T) {
	h := startHub(t)
	for name, leaf := range map[string]struct {
		ca   *pki.CA
		cn   string
		want bool
	}{
		"an agent":                 {h.agentCA, identity.AgentCommonName("cluster1"), false},
		"a peer of the agents' CA": {h.agentCA, string(identity.RolePeer), false},
		"an agent of the hub's CA": {h.hubCA, identity.AgentCommonName("cluster1"), false},
		"another server":           {h.hubCA, "proxy-server", false},
		"a role that begins so":    {h.hubCA, string(identity.RolePeer) + "2", false},
		"a peer (others may ask for dials, and not for the directory: TestDirectoryIsForPeers)": {h.hubCA, string(identity.RolePeer), true},
	} {
		config := h.tlsFor(t, leaf.ca, leaf.cn)
		config.NextProtos = []string{carrier.ALPN}
		conn, err := tls.Dial("tcp", h.clientAddr, config)
		if err != nil { // which is how a server refuses that reads the certificate in time
			if leaf.want {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		c, err := carrier.Dialed(t.Context(), conn, carrier.Hello{}, carrier.Config{Role: carrier.Opener})
		if err == nil {
			_ = c.Close()
		}
		if (err == nil) != leaf.want {
			t.Errorf("%s became a peer: %t (%v), want %t", name, err == nil, err, leaf.want)
		}
	}
}

// A server at a peer's address that does not select carriers by ALPN is no peer,
// though its certificate is good.
func TestPeersSpeakCarriers(t *testing.T) {
	h := startHub(t)
	source := pkitest.NewReloader(t, h.hubCA, servingLeaf, h.hubCA)
	for name, protocols := range map[string][]string{"no ALPN": nil, "HTTP/2": {"h2"}} {
		t.Run(name, func(t *testing.T) {
			config := source.ServerConfig(tls.RequireAndVerifyClientCert)
			config.NextProtos = protocols
			listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				if conn, err := listener.Accept(); err == nil {
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}
			}()
			c, err := h.dialPeer(t.Context(), listener.Addr().String(), "127.0.0.1")
			if err == nil {
				_ = c.Close()
				t.Fatal("dialPeer made a carrier, want an error")
			}
			if protocols == nil && !errors.Is(err, carrier.ErrNoCarriers) {
				t.Errorf("dialPeer = %v, want %v", err, carrier.ErrNoCarriers)
			}
		})
	}
}

// TestPeersComeAndGo resolves the peers' name again and again. An address is given up when two
// answers lack it, and none counts that did not come.
func TestPeersComeAndGo(t *testing.T) {
	p := &peers{addresses: []string{"proxy.example:8090"}, self: "me", limits: newLimits(), now: make(chan struct{}, 1),
		known: map[string]*peerServer{}, last: map[string]*peerServer{},
		dial: func(ctx context.Context, _, _ string) (*carrier.Carrier, error) { <-ctx.Done(); return nil, ctx.Err() }}
	defer p.close()
	known := func() (all []string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for address := range p.known {
			all = append(all, address)
		}
		slices.Sort(all)
		return all
	}
	for _, step := range []struct {
		ips  []string
		err  error
		want []string
	}{
		{[]string{"10.0.0.1", "10.0.0.2"}, nil, []string{"10.0.0.1:8090", "10.0.0.2:8090"}},
		{nil, errors.New("no answer"), []string{"10.0.0.1:8090", "10.0.0.2:8090"}},
		{[]string{"10.0.0.2"}, nil, []string{"10.0.0.1:8090", "10.0.0.2:8090"}}, // a part of the answer
		{[]string{"10.0.0.1", "10.0.0.2"}, nil, []string{"10.0.0.1:8090", "10.0.0.2:8090"}},
		{[]string{"10.0.0.2", "fd00::3"}, nil, []string{"10.0.0.1:8090", "10.0.0.2:8090", "[fd00::3]:8090"}},
		{nil, errors.New("no answer"), []string{"10.0.0.1:8090", "10.0.0.2:8090", "[fd00::3]:8090"}},
		{[]string{"10.0.0.2", "fd00::3"}, nil, []string{"10.0.0.2:8090", "[fd00::3]:8090"}},
	} {
		p.lookup = func(context.Context, string) ([]string, error) { return step.ips, step.err }
		if err := p.resolve(t.Context()); !errors.Is(err, step.err) {
			t.Errorf("resolve = %v, want %v", err, step.err)
		}
		if got := known(); !slices.Equal(got, step.want) {
			t.Errorf("peers are %q, want %q", got, step.want)
		}
	}
}

// TestPeersBehindOneAddress has many dials ask for the same address at once, as they do when the
// peer behind it has ended: a load balancer leads some of them back here. The address stays that
// of a peer, whichever of them end last.
func TestPeersBehindOneAddress(t *testing.T) {
	leadsTo := ""
	p := &peers{self: "me", limits: newLimits(), known: map[string]*peerServer{}, last: map[string]*peerServer{},
		dial: func(ctx context.Context, _, _ string) (*carrier.Carrier, error) {
			here, there := net.Pipe()
			t.Cleanup(func() { _, _ = here.Close(), there.Close() })
			go func() {
				_, _, _ = carrier.Accepted(context.WithoutCancel(ctx), there, carrier.Config{Role: carrier.Acceptor, Name: leadsTo})
			}()
			return carrier.Dialed(ctx, here, carrier.Hello{}, carrier.Config{Role: carrier.Opener})
		}}
	one := &peerServer{address: "10.0.0.1:8090", pool: pool.New(pool.Config{OnePeer: true}), alive: liveness.New(nil)}
	defer one.pool.Close()
	p.known[one.address] = one
	lead := func(to string, times int) {
		t.Helper()
		leadsTo = to
		for range times {
			c, err := p.reach(t.Context(), one)
			if to == p.self && err != errSelf || to != p.self && err != nil {
				t.Fatalf("an address that leads to %q: %v", to, err)
			}
			if err == nil {
				defer c.Close()
			}
		}
	}
	lead("me", surelySelf)
	if len(p.candidates("cluster1")) != 0 {
		t.Fatal("this server's own address is asked for clusters")
	}
	lead("other", 1)
	lead("me", surelySelf)
	if len(p.candidates("cluster1")) != 1 {
		t.Error("an address that led to a peer is taken for this server's own")
	}
}

// An agent whose stream broke without its knowledge is told so by its next
// carrier.
func TestCarriersOfUnknownSessions(t *testing.T) {
	h := startHub(t)
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("cluster1"))
	config.NextProtos = []string{carrier.ALPN}
	conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), config)
	if err != nil {
		t.Fatal(err)
	}
	hello := carrier.Hello{Session: "agent"}
	c, err := carrier.Dialed(t.Context(), conn, hello, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(func(context.Context, *carrier.Pending) {})})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-c.Done()
	if code := carrier.CodeOf(c.Err()); code != carrier.NoAgent {
		t.Errorf("the carrier ends with %v, want that there is no such session", c.Err())
	}
}
