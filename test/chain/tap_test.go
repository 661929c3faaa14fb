package chain

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// tap stands where a proxy server does, with a proxy server's certificate, before
// one port of the real one: it writes down what goes through inside the TLS that
// ends at a proxy server.
type tap struct {
	listener net.Listener
	dial     func(protocol string) (*tls.Conn, error)
	wg       sync.WaitGroup

	mu       sync.Mutex
	open     map[net.Conn]struct{}
	recorded []*recording
}

// recording is one connection: what the side that dialed sent, and what it got.
type recording struct {
	protocol string
	mu       sync.Mutex
	sent     bytes.Buffer
	got      bytes.Buffer
}

// startTap taps a port of the proxy server. ca is that of the port's peers, and
// leaf what such a peer has.
func startTap(w *world, ca *pki.CA, leaf pki.Leaf, address string) *tap {
	w.t.Helper()
	server := pkitest.NewReloader(w.t, w.hubCA, pki.Leaf{CommonName: string(identity.RolePeer), IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}, ca)
	peer := pkitest.NewReloader(w.t, ca, leaf, w.hubCA)
	config := server.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{carrier.ALPN, "h2"}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		w.t.Fatal(err)
	}
	t := &tap{listener: listener, open: map[net.Conn]struct{}{}, dial: func(protocol string) (*tls.Conn, error) {
		config := peer.ClientConfig("127.0.0.1")
		config.NextProtos = []string{protocol}
		return tls.Dial("tcp", address, config)
	}}
	t.wg.Go(t.serve)
	w.t.Cleanup(func() {
		listener.Close()
		t.mu.Lock()
		for conn := range t.open {
			conn.Close()
		}
		t.mu.Unlock()
		t.wg.Wait()
	})
	return t
}

func (t *tap) address() string { return t.listener.Addr().String() }

func (t *tap) serve() {
	for {
		conn, err := t.listener.Accept()
		if err != nil {
			return
		}
		t.wg.Go(func() { t.forward(conn.(*tls.Conn)) })
	}
}

func (t *tap) forward(conn *tls.Conn) {
	defer conn.Close()
	if err := conn.Handshake(); err != nil {
		return
	}
	r := &recording{protocol: conn.ConnectionState().NegotiatedProtocol}
	server, err := t.dial(r.protocol)
	if err != nil {
		return
	}
	defer server.Close()
	t.mu.Lock()
	t.recorded = append(t.recorded, r)
	t.open[conn], t.open[server] = struct{}{}, struct{}{}
	t.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(server, io.TeeReader(conn, r.writer(&r.sent))); _ = server.CloseWrite() })
	both.Go(func() { _, _ = io.Copy(conn, io.TeeReader(server, r.writer(&r.got))); _ = conn.CloseWrite() })
	both.Wait()
}

// writer is a direction of the recording, whole at any time.
func (r *recording) writer(to *bytes.Buffer) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return to.Write(p)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// directions are copies of what was recorded so far.
func (r *recording) directions() map[string][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return map[string][]byte{"sent": bytes.Clone(r.sent.Bytes()), "got": bytes.Clone(r.got.Bytes())}
}

// connections takes a direction of a carrier apart: where OPEN frames lead to, and
// the bytes of each connection.
func connections(raw []byte) (addresses []string, data [][]byte, err error) {
	var current []byte
	for len(raw) >= carrier.HeaderSize {
		kind, length, err := carrier.ParseHeader(raw)
		if err != nil {
			return nil, nil, err
		}
		if len(raw) < carrier.HeaderSize+length {
			break // on its way
		}
		payload := raw[carrier.HeaderSize : carrier.HeaderSize+length]
		raw = raw[carrier.HeaderSize+length:]
		switch kind {
		case carrier.FrameOpen:
			addresses = append(addresses, string(payload))
		case carrier.FrameData:
			current = append(current, payload...)
		case carrier.FrameFin:
			data, current = append(data, current), nil
		}
	}
	return addresses, append(data, current), nil
}

// checkTLS reports what of a connection's bytes is no TLS record. The last one may
// be incomplete.
func checkTLS(data []byte) error {
	for at := 0; len(data)-at >= 5; {
		kind, version, length := data[at], binary.BigEndian.Uint16(data[at+1:]), int(binary.BigEndian.Uint16(data[at+3:]))
		if kind < 20 || kind > 23 || version < 0x0301 || version > 0x0303 || length > 16384+256 {
			return fmt.Errorf("at byte %d there is no TLS record but %q", at, data[at:min(len(data), at+40)])
		}
		if at == 0 && kind != 22 {
			return errors.New("it does not begin with a handshake")
		}
		at += 5 + length
	}
	return nil
}

// serverName reads the name that a ClientHello asks for.
func serverName(hello []byte) (name string) {
	_ = tls.Server(replay{Reader: bytes.NewReader(hello)}, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		name = info.ServerName
		return nil, errors.New("that is all")
	}}).Handshake()
	return name
}

// replay is a connection that gives bytes and takes any.
type replay struct {
	io.Reader
	net.Conn
}

func (r replay) Read(p []byte) (int, error)  { return r.Reader.Read(p) }
func (r replay) Write(p []byte) (int, error) { return len(p), nil }

// handlerAddress is where cluster-proxy v0.11.0 dials for cluster1.
const handlerAddress = "cluster-a140791d2b20a847f2c74c62c384f93fb83691d871e80385.open-cluster-management.proxy:7443"

// TestProxyServersSeeTLS reads what a proxy server could, on both of its ports:
// where connections lead to, in upstream's words, and TLS of which it has no key.
func TestProxyServersSeeTLS(t *testing.T) {
	if checkTLS([]byte("GET / HTTP/1.1\r\n")) == nil {
		t.Fatal("anything is taken for TLS")
	}
	taps := map[string]*tap{}
	w := start(t, answering, options{between: func(w *world, port, address string) string {
		ca, leaf := w.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}
		if port == "agents" {
			ca, leaf = w.agentCA, pki.Leaf{CommonName: identity.AgentCommonName(cluster), Organizations: identity.AgentOrganizations(cluster), Client: true}
		}
		taps[port] = startTap(w, ca, leaf, address)
		return taps[port].address()
	}})
	sendCanaries(t, w)
	for port, tap := range taps {
		opened, names := map[string]int{}, map[string]int{}
		tap.mu.Lock()
		recorded := tap.recorded
		tap.mu.Unlock()
		for _, r := range recorded {
			for direction, raw := range r.directions() {
				for what, mark := range canaries {
					if bytes.Contains(raw, []byte(mark)) {
						t.Errorf("port of %s: a proxy server sees %s", port, what)
					}
				}
				if r.protocol != carrier.ALPN {
					continue
				}
				addresses, data, err := connections(raw)
				if err != nil {
					t.Fatal(err)
				}
				for _, address := range addresses {
					_, rest, _ := strings.Cut(address, "\x12"+string(rune(len(handlerAddress))))
					opened[rest[:min(len(rest), len(handlerAddress))]]++
				}
				for _, stream := range data {
					if err := checkTLS(stream); err != nil {
						t.Errorf("port of %s, %s: %v", port, direction, err)
					}
					if bytes.Contains(stream, []byte(cluster)) {
						t.Errorf("port of %s, %s: the cluster's name is there to read", port, direction)
					}
					if len(stream) > 100 && stream[5] == 1 { // ClientHello
						names[serverName(stream)]++
					}
				}
			}
		}
		host := strings.TrimSuffix(handlerAddress, ":7443")
		// The last connections may be on their way still.
		if len(opened) != 1 || opened[handlerAddress] < 2 || len(names) != 1 || names[host] < 2 {
			t.Errorf("port of %s: connections to %v, TLS with %v; want only %s", port, opened, names, handlerAddress)
		}
	}
}
