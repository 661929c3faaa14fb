package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// subject is one way to reach the target, which can be opened again and again.
type subject struct {
	name  string
	start func() (*path, error)
	path  *path // nil while it is closed
}

func (s *subject) open() (err error) {
	if s.path == nil {
		s.path, err = s.start()
	}
	return err
}

func (s *subject) close() {
	if s.path != nil {
		s.path.close()
		s.path = nil
	}
}

// path is a subject that is open.
type path struct {
	dial   func(ctx context.Context) (net.Conn, error)
	relays []*process
	// close ends the relays, and by that whatever waits for them. It may be
	// called more than once.
	close func()
	// server is where agents may connect to; only systems have one.
	server *system
}

// world is what all subjects share.
type world struct {
	dir    string
	certs  certFiles
	target *target
	builds map[string]error // of what was built, by its file
	base   *source          // of an earlier commit, if there is one to compare with
}

func newWorld(dir string) (*world, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, certs: certFiles(dir), target: newTarget(l), builds: map[string]error{}}
	return w, w.certs.make()
}

func (w *world) close() { w.target.close() }

func (w *world) log(name string) string { return filepath.Join(w.dir, name+".log") }

// place is where a link's ends are: processes of the hub listen on hub, those
// of the cluster run in a network of their own, if there is one.
type place struct {
	link
	hub, edge string   // addresses
	inside    []string // what a command that runs in the cluster's network begins with
	target    string   // host:port
}

// subjects are those of a link.
func (w *world) subjects(l link) ([]*subject, error) {
	at := &place{link: l, hub: "127.0.0.1", edge: "127.0.0.1", target: w.target.address()}
	var shaped *shapedLink
	if l.shaped {
		var err error
		if shaped, err = w.shape(at); err != nil {
			return nil, err
		}
	}
	first := &subject{name: direct, start: func() (*path, error) { return w.direct(at) }}
	if shaped != nil {
		// The link ends with the first subject, which is closed after all
		// measurements only: it is not in rows that want fresh relays.
		start := first.start
		first.start = func() (*path, error) {
			p, err := start()
			if err != nil {
				return nil, err
			}
			end := p.close
			p.close = func() { end(); shaped.close() }
			return p, nil
		}
	}
	if l.roundTrip > 0 {
		first.start = func() (*path, error) { return w.distantTLS(at) }
	}
	start := map[string]func() (*path, error){
		bareRelay:          func() (*path, error) { return w.bareRelay(at) },
		konnectivitySystem: func() (*path, error) { return w.stock(at) },
		stockClient:        func() (*path, error) { return w.ours(at, today, w.withStockClient) },
		ourDialer:          func() (*path, error) { return w.ours(at, today, w.withOurDialer) },
		baseStockClient:    func() (*path, error) { return w.ours(at, w.base, w.withStockClient) },
		baseDialer:         func() (*path, error) { return w.ours(at, w.base, w.withOurDialer) },
	}
	subjects := []*subject{first}
	for _, name := range columns(w.base != nil)[1:] {
		if name == bareRelay && l.roundTrip > 0 {
			continue
		}
		subjects = append(subjects, &subject{name: name, start: start[name]})
	}
	return subjects, nil
}

// direct dials the target. Its connections end with it, since nothing else
// would wake who is stuck in one.
func (w *world) direct(at *place) (*path, error) {
	var mu sync.Mutex
	var open []net.Conn
	return &path{dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.target)
		if err == nil {
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
		}
		return conn, err
	}, close: func() {
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range open {
			_ = conn.Close()
		}
	}}, nil
}

// startEdge starts the half of the bare relay that is beside the target: TLS on
// one side, TCP on the other.
func (w *world) startEdge(at *place) (*process, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	return start(w.log("relay-edge"), true, append(at.inside[:len(at.inside):len(at.inside)], self, "--child=edge", "--listen="+net.JoinHostPort(at.edge, "0"), "--dir="+w.dir, "--to="+at.target)...)
}

func (w *world) bareRelay(at *place) (*path, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	edge, edgeAddress, err := w.startEdge(at)
	if err != nil {
		return nil, err
	}
	hub, hubAddress, err := start(w.log("relay-hub"), true, self, "--child=hub", "--dir="+w.dir, "--to="+edgeAddress)
	if err != nil {
		edge.stop()
		return nil, err
	}
	_, clientTLS, err := w.certs.configs()
	if err != nil {
		return nil, err
	}
	for _, p := range []*process{hub, edge} {
		p.collect = func() error { return p.command("collect") }
	}
	dialer := &tls.Dialer{Config: clientTLS}
	return &path{
		dial:   func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", hubAddress) },
		relays: []*process{hub, edge},
		close:  func() { hub.stop(); edge.stop() },
	}, nil
}

// stock is konnectivity's own server and agent, built from the module that
// go.mod names, with konnectivity's client.
func (w *world) stock(at *place) (*path, error) {
	var binaries [2]string
	for i, name := range []string{"server", "agent"} {
		var err error
		if binaries[i], err = w.build(today, "konnectivity-"+name, "sigs.k8s.io/apiserver-network-proxy/cmd/"+name); err != nil {
			return nil, err
		}
	}
	s, err := w.startSystem(konnectivitySystem, at, binaries[:1], binaries[1:])
	if err != nil {
		return nil, err
	}
	return w.withStockClient(at, s)
}

// ours is our server and agent of a commit, with a client of either kind.
func (w *world) ours(at *place, of *source, with func(*place, *system) (*path, error)) (*path, error) {
	binary, err := w.build(of, "cluster-proxy", "open-cluster-management.io/cluster-proxy/cmd/cluster-proxy")
	if err != nil {
		return nil, err
	}
	s, err := w.startSystem(of.name, at, []string{binary, "proxy-server"}, []string{binary, "proxy-agent"})
	if err != nil {
		return nil, err
	}
	return with(at, s)
}

func (w *world) withOurDialer(at *place, s *system) (*path, error) {
	dialer, err := tunnel.FromFiles(s.clientAddress, w.certs.path("ca.crt"), w.certs.path("client.crt"), w.certs.path("client.key"))
	if err != nil {
		s.stop()
		return nil, err
	}
	return &path{
		dial:   func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", at.target) },
		relays: s.relays,
		close:  func() { s.stop(); _ = dialer.Close() },
		server: s,
	}, nil
}

func (w *world) withStockClient(at *place, s *system) (*path, error) {
	_, clientTLS, err := w.certs.configs()
	if err != nil {
		s.stop()
		return nil, err
	}
	transport := grpc.WithTransportCredentials(credentials.NewTLS(clientTLS))
	return &path{
		dial: func(ctx context.Context) (net.Conn, error) {
			single, err := konnectivity.CreateSingleUseGrpcTunnel(ctx, s.clientAddress, transport)
			if err != nil {
				return nil, fmt.Errorf("opening a tunnel: %w", err)
			}
			return single.DialContext(ctx, "tcp", at.target)
		},
		relays: s.relays,
		close:  s.stop,
		server: s,
	}, nil
}
