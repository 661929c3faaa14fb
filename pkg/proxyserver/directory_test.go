package proxyserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/liveness"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// hear waits until a server has heard of so many peers what they have: each of hosts, as
// often as it is named.
func (h *testHub) hear(t *testing.T, peers int, hosts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s knows where %q are", h.options.ServerID, hosts), func() bool {
		h.peers.mu.Lock()
		defer h.peers.mu.Unlock()
		complete, found := 0, 0
		for _, one := range h.peers.known {
			if one.told.complete {
				complete++
			}
			for _, host := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
				if one.told.has(host) {
					found++
				}
			}
		}
		return complete == peers && found == len(hosts)
	})
}

// TestOneHop has each of five clusters at one of five servers. Every server reaches every
// cluster by the first peer that it asks.
func TestOneHop(t *testing.T) {
	hubs := startPeers(t, 5)
	var clusters []string
	for i, h := range hubs {
		clusters = append(clusters, fmt.Sprint("cluster", i))
		h.carrierAgent(t, agentSpec{cluster: clusters[i]}, 2)
	}
	for i, h := range hubs {
		others := slices.Delete(slices.Clone(clusters), i, i+1)
		h.hear(t, len(others), others...)
		d := h.dialer(t)
		for _, cluster := range clusters {
			conn, err := d.DialContext(t.Context(), "tcp", cluster+":443")
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, conn, "hello", cluster+":hello")
			_ = conn.Close()
		}
		if _, body := h.scrape(t, "/metrics"); !strings.Contains(body, "\ncluster_proxy_server_peer_dials_rejected_total 0\n") {
			t.Errorf("%s asked peers in vain: %s", h.options.ServerID, lineOf(body, "peer_dials_rejected_total"))
		}
	}
}

// lineOf returns the last line that contains text.
func lineOf(body, text string) (found string) {
	for line := range strings.Lines(body) {
		if strings.Contains(line, text) {
			found = line
		}
	}
	return found
}

// TestDirectoryChanges lets an agent go from one peer to another one, which the others hear.
func TestDirectoryChanges(t *testing.T) {
	hubs := startPeers(t, 3)
	first := hubs[1].mustConnect(t, agentSpec{cluster: "cluster1"})
	hubs[0].hear(t, 2, "cluster1")
	_ = first.Close()
	hubs[0].hear(t, 2)
	eventually(t, "the host is forgotten", func() bool {
		hubs[0].peers.mu.Lock()
		defer hubs[0].peers.mu.Unlock()
		for _, one := range hubs[0].peers.known {
			if one.told.has("cluster1") {
				return false
			}
		}
		return true
	})
	hubs[2].mustConnect(t, agentSpec{cluster: "cluster1"})
	hubs[0].hear(t, 2, "cluster1")
}

// TestDirectoryIsForPeers lets clients ask which clusters have agents.
func TestDirectoryIsForPeers(t *testing.T) {
	h := startHub(t)
	h.mustConnect(t, agentSpec{cluster: "cluster1"})
	for _, tc := range []struct {
		role identity.Role
		want carrier.Code // 0 is an answer
	}{
		{identity.RoleClient, carrier.Denied}, {identity.RoleProxyAPI, carrier.Denied}, {identity.RolePeer, 0},
	} {
		c := h.carrier(t, h.tlsFor(t, h.hubCA, string(tc.role)))
		defer c.Close()
		conn, err := c.Open(t.Context(), carrier.OpenRequest{Network: networkDirectory, Address: directoryAddress, Hops: 1})
		if carrier.CodeOf(err) != tc.want {
			t.Errorf("%s asks which clusters there are: %v, want code %v", tc.role, err, tc.want)
		}
		if err != nil {
			continue
		}
		told := make([]byte, 4096)
		n, err := conn.Read(told)
		if err != nil || !bytes.Contains(told[:n], []byte(`"cluster1"`)) {
			t.Errorf("%s is told %q, %v; want that there is cluster1", tc.role, told[:n], err)
		}
		_ = conn.Close()
	}
}

// TestDirectoryInParts has more hosts than one message takes, and changes before all are told.
func TestDirectoryInParts(t *testing.T) {
	a := newAgentRegistry(newLimits(), func(agentKey, string) {})
	const hosts = 2*directoryChunk + 1
	for i := range hosts {
		a.hosts[fmt.Sprint("host", i)] = nil
	}
	f := a.follow()
	known := told{hosts: map[string]struct{}{}}
	hear := func() (messages int) {
		for complete := false; !complete; messages++ {
			news := a.news(f)
			if n := len(news.Has) + len(news.Lacks); n > directoryChunk {
				t.Errorf("a message has %d hosts, want %d at most", n, directoryChunk)
			}
			for _, host := range news.Has {
				known.hosts[host] = struct{}{}
			}
			for _, host := range news.Lacks {
				delete(known.hosts, host)
			}
			complete = news.Complete
		}
		return messages
	}
	a.tellFollowers([]string{"host1", "host2"}, false)
	a.tellFollowers([]string{"host2", "new"}, true)
	if messages := hear(); messages != 3 {
		t.Errorf("%d hosts took %d messages, want 3", hosts, messages)
	}
	if len(known.hosts) != hosts || known.has("host1") || !known.has("host2") || !known.has("new") {
		t.Errorf("%d hosts are known, want %d; host1: %t, host2: %t, new: %t, want false, true and true",
			len(known.hosts), hosts, known.has("host1"), known.has("host2"), known.has("new"))
	}
	a.unfollow(f)
	if a.tellFollowers([]string{"later"}, true); len(f.hosts) > 0 {
		t.Error("a peer that has gone is told of agents")
	}
}

// TestPeersThatDoNotSay asks a peer that does not answer the question for its clusters.
func TestPeersThatDoNotSay(t *testing.T) {
	asked := make(chan string, 10)
	silent := carrier.HandlerFunc(func(_ context.Context, p *carrier.Pending) {
		asked <- p.Network
		if p.Network != "tcp" {
			_ = p.Refuse(errNoAgent)
			return
		}
		conn, err := p.Accept(carrier.Endpoints{})
		if err == nil {
			_ = conn.Close()
		}
	})
	p := &peers{addresses: []string{"proxy.example:8090"}, self: "me", limits: newLimits(), now: make(chan struct{}, 1), resolved: make(chan struct{}),
		known: map[string]*peerServer{}, last: map[string]*peerServer{},
		lookup: func(context.Context, string) ([]string, error) { return []string{"10.0.0.1"}, nil },
		dial: func(ctx context.Context, _, _ string) (*carrier.Carrier, error) {
			here, there := net.Pipe()
			go func() {
				if _, _, err := carrier.Accepted(context.WithoutCancel(ctx), there, carrier.Config{Role: carrier.Acceptor, Handler: silent, Name: "silent"}); err != nil {
					_ = there.Close()
				}
			}()
			return carrier.Dialed(ctx, here, carrier.Hello{}, carrier.Config{Role: carrier.Opener})
		}}
	defer p.close()
	if err := p.resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(p.resolved)
	if network := <-asked; network != networkDirectory {
		t.Fatalf("a peer is first asked for %q, want %q", network, networkDirectory)
	}
	conn, err := p.open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:443", Hops: 1}, func() {})
	if err != nil {
		t.Fatalf("a dial through a peer that does not say what it has: %v", err)
	}
	_ = conn.Close()
}

// TestWhichPeerIsAsked orders peers for a dial.
func TestWhichPeerIsAsked(t *testing.T) {
	hubs := startPeers(t, 4)
	hubs[0].hear(t, 3)
	p := hubs[0].peers
	p.mu.Lock()
	names := map[*peerServer]string{}
	peers := map[string]*peerServer{}
	for _, h := range hubs[1:] {
		one := p.known[h.clientAddr]
		names[one], peers[h.options.ServerID] = h.options.ServerID, one
	}
	cluster := map[string]struct{}{"cluster1": {}}
	peers["server-1"].told = told{complete: true}
	peers["server-2"].told = told{complete: true, hosts: cluster, draining: true}
	peers["server-3"].told = told{complete: true, hosts: cluster}
	p.mu.Unlock()
	order := func() (order []string) {
		for _, one := range p.candidates("cluster1") {
			if names[one] != "" { // not the server itself
				order = append(order, names[one])
			}
		}
		return order
	}
	if got, want := order(), []string{"server-3", "server-2", "server-1"}; !slices.Equal(got, want) {
		t.Errorf("peers are asked in the order %q, want %q: has it, has it and drains, has it not", got, want)
	}
	suspect := make(chan struct{})
	defer peers["server-3"].alive.Forget()
	peers["server-3"].alive = liveness.New(func(context.Context) error { return context.DeadlineExceeded })
	defer peers["server-3"].alive.Forget()
	defer peers["server-3"].alive.AwaitAnswer(func() { close(suspect) })()
	<-suspect
	if got, want := order(), []string{"server-2", "server-1", "server-3"}; !slices.Equal(got, want) {
		t.Errorf("with one that does not answer, peers are asked in the order %q, want %q", got, want)
	}
}

// TestPeerThatDiesIsPassedOver stops one of two peers that have a cluster.
func TestPeerThatDiesIsPassedOver(t *testing.T) {
	hubs := startPeers(t, 4)
	for _, h := range hubs[1:3] {
		h.carrierAgent(t, agentSpec{cluster: "cluster1", id: h.options.ServerID}, 2)
	}
	hubs[0].hear(t, 3, "cluster1", "cluster1")
	d := hubs[0].dialer(t)
	for i := range 10 {
		if i == 2 {
			hubs[1].stop()
			<-hubs[1].done
		}
		ctx, cancel := context.WithTimeout(t.Context(), tunnel.DefaultDialTimeout)
		began := time.Now()
		conn, err := d.DialContext(ctx, "tcp", "cluster1:443")
		cancel()
		if err != nil {
			t.Fatalf("dial %d: %v after %s", i, err, time.Since(began))
		}
		_ = conn.Close()
	}
}

// endless is a message of a peer that does not end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// TestPeerSaysTooMuch has a hostile peer send a message without an end, after one that is in order.
func TestPeerSaysTooMuch(t *testing.T) {
	rest := &endless{}
	from := &newsReader{from: io.MultiReader(strings.NewReader(`{"has":["a"]}{"has":["`), rest)}
	in := json.NewDecoder(from)
	var news directoryNews
	from.left = maxNews
	if err := in.Decode(&news); err != nil || !slices.Equal(news.Has, []string{"a"}) {
		t.Fatalf("the first message is %+v, %v; want that there is host a", news, err)
	}
	from.left = maxNews
	if err := in.Decode(&news); !errors.Is(err, errLongNews) {
		t.Errorf("a message without an end: %v, want %v", err, errLongNews)
	}
	if rest.read > 2*maxNews {
		t.Errorf("%d bytes of it were read, want %d at most", rest.read, 2*maxNews)
	}
}
