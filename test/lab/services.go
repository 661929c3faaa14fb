package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

// serviceTable gives ports of Services local listeners, which spread
// connections over the processes of the Service's pods: the lab's kube-proxy.
type serviceTable struct {
	file   string
	preset map[string]int // "service:port" to a local port

	mu       sync.Mutex
	services map[string]*service
	listens  map[string]bool // ClusterIP:port
}

type service struct {
	address string
	open    atomic.Int32 // connections

	mu       sync.Mutex
	backends []string
	next     int
}

func serviceKey(cluster, namespace, name string, port int) string {
	return fmt.Sprintf("%s/%s/%s:%d", cluster, namespace, name, port)
}

// endpoints is how many addresses a headless Service has in the lab, each with a pod of its own
// behind it, or none. More pods than that share them.
const endpoints = 4

// endpoint names one of them, as if it were a Service.
func endpoint(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }

func newServiceTable(dir string, preset map[string]int) *serviceTable {
	return &serviceTable{file: filepath.Join(dir, "services.json"), preset: preset, services: map[string]*service{}, listens: map[string]bool{}}
}

// readServiceTable is the table as the lab last wrote it.
func readServiceTable(dir string) map[string]string {
	table := map[string]string{}
	raw, err := os.ReadFile(filepath.Join(dir, "services.json"))
	if err == nil {
		_ = json.Unmarshal(raw, &table)
	}
	return table
}

// address is the local address of a port of a Service. It is the same for the
// life of the lab, and there before any pod is.
func (t *serviceTable) address(ctx context.Context, cluster, namespace, name string, port int) (string, error) {
	s, err := t.get(ctx, cluster, namespace, name, port)
	if err != nil {
		return "", err
	}
	return s.address, nil
}

// addresses are what the name of a headless Service resolves to. They do not change.
func (t *serviceTable) addresses(ctx context.Context, cluster, namespace, name string, port int) (all []string, err error) {
	for i := range endpoints {
		address, err := t.address(ctx, cluster, namespace, endpoint(name, i), port)
		if err != nil {
			return nil, err
		}
		all = append(all, address)
	}
	return all, nil
}

// setEndpoints gives each address of a headless Service a pod. One that has a pod keeps it.
func (t *serviceTable) setEndpoints(ctx context.Context, cluster, namespace, name string, port int, backends []string) error {
	var behind [endpoints][]string
	left := slices.Clone(backends)
	for i := range behind {
		s, err := t.get(ctx, cluster, namespace, endpoint(name, i), port)
		if err != nil {
			return err
		}
		s.mu.Lock()
		before := s.backends
		s.mu.Unlock()
		for _, pod := range before {
			if at := slices.Index(left, pod); at >= 0 {
				behind[i], left = append(behind[i], pod), slices.Delete(left, at, at+1)
			}
		}
	}
	for _, pod := range left {
		least := 0
		for i := range behind {
			if len(behind[i]) < len(behind[least]) {
				least = i
			}
		}
		behind[least] = append(behind[least], pod)
	}
	for i, pods := range behind {
		if err := t.setBackends(ctx, cluster, namespace, endpoint(name, i), port, pods); err != nil {
			return err
		}
	}
	return nil
}

func (t *serviceTable) setBackends(ctx context.Context, cluster, namespace, name string, port int, backends []string) error {
	s, err := t.get(ctx, cluster, namespace, name, port)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = backends
	return nil
}

// listenOn gives a port of a Service a listener at its ClusterIP too, if that is
// an address of this machine. Somebody else's listener there, or a system that
// has no such address, is an error.
func (t *serviceTable) listenOn(ctx context.Context, cluster, namespace, name, clusterIP string, port int) error {
	if ip := net.ParseIP(clusterIP); ip == nil || !ip.IsLoopback() {
		return nil
	}
	s, err := t.get(ctx, cluster, namespace, name, port)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(clusterIP, strconv.Itoa(port))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listens[address] {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening at the address of Service %s/%s: %w", namespace, name, err)
	}
	t.listens[address] = true
	go func() {
		<-ctx.Done()
		_ = listener.Close()
	}()
	go s.serve(ctx, listener)
	return nil
}

func (t *serviceTable) get(ctx context.Context, cluster, namespace, name string, port int) (*service, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := serviceKey(cluster, namespace, name, port)
	if s, ok := t.services[key]; ok {
		return s, nil
	}
	local, ok := t.preset[fmt.Sprintf("%s:%d", name, port)]
	if !ok || cluster != hubName {
		var err error
		if local, err = ports.Next(); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", local))
	if err != nil {
		return nil, fmt.Errorf("listening for Service %s: %w", key, err)
	}
	s := &service{address: listener.Addr().String()}
	t.services[key] = s
	go func() {
		<-ctx.Done()
		_ = listener.Close()
	}()
	go s.serve(ctx, listener)
	return s, t.write()
}

func (t *serviceTable) write() error {
	table := map[string]string{}
	for key, s := range t.services {
		table[key] = s.address
	}
	raw, err := json.MarshalIndent(table, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(t.file, raw)
}

func (s *service) serve(ctx context.Context, listener net.Listener) {
	handshakes.Accept(listener, klog.FromContext(ctx), func(conn net.Conn) { s.forward(ctx, conn) })
}

// forward tries every backend once, beginning with the one whose turn it is.
func (s *service) forward(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	s.mu.Lock()
	backends := s.backends
	s.next++
	first := s.next
	s.mu.Unlock()
	for i := range backends {
		backend, err := new(net.Dialer).DialContext(ctx, "tcp", backends[(first+i)%len(backends)])
		if err != nil {
			continue
		}
		defer backend.Close()
		stop := context.AfterFunc(ctx, func() { conn.Close(); backend.Close() })
		defer stop()
		defer s.open.Add(-1)
		copyBoth(conn.(*net.TCPConn), backend.(*net.TCPConn), s.open.Add(1) <= spliced)
		return
	}
}

// spliced is how many connections of a Service the kernel copies: it takes two pipes, four
// files, for each.
const spliced = 1000

func copyBoth(a, b *net.TCPConn, splice bool) {
	var wg sync.WaitGroup
	wg.Go(func() { copyHalf(a, b, splice) })
	copyHalf(b, a, splice)
	wg.Wait()
}

// copyHalf passes on a clean end as a half-close, and anything else as the end
// of both connections.
func copyHalf(to, from *net.TCPConn, splice bool) {
	var in io.Reader = from
	var out io.Writer = to
	var buffer []byte
	if !splice {
		in, out, buffer = struct{ io.Reader }{from}, struct{ io.Writer }{to}, make([]byte, 4<<10)
	}
	if _, err := io.CopyBuffer(out, in, buffer); err != nil {
		to.Close()
		from.Close()
		return
	}
	_ = to.CloseWrite()
}

// replaceFile writes a file so that readers see the old or the new content.
func replaceFile(file string, content []byte) error {
	partial := file + ".partial"
	if err := os.WriteFile(partial, content, 0o600); err != nil {
		return err
	}
	return os.Rename(partial, file)
}
