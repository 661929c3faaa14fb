package httprelay

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// pipes is a listener for connections that keep nothing themselves: what was written was
// read, and what nobody reads the writer has to keep.
type pipes struct {
	net.Listener // for Addr
	conns        chan net.Conn
	closed       chan struct{}
	once         sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// TestFloods has clients send what costs a server more than them, for as long as it
// lets them, and read nothing of the answers. The server ends the connection, or keeps nothing of it, and
// somebody else is served beside it. The proxy API and the agents' handlers serve by
// ConfigureServer.
func TestFloods(t *testing.T) {
	// 1 MiB are 60,000 PINGs, the answers to which would take 5 MiB.
	const flood, kept = 1 << 20, 2 << 20
	ca := pkitest.NewCA(t, "hub")
	files := pkitest.Issue(t, filepath.Join(t.TempDir(), "server"), ca, pki.Leaf{CommonName: "server", DNSNames: []string{"server"}, Server: true}, ca)
	config := pkitest.Load(t, files).ServerConfig(tls.NoClientCert)
	config.NextProtos, config.SessionTicketsDisabled = []string{"h2"}, true // a ticket would have to be read
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), TLSConfig: config, MaxHeaderBytes: MaxHeaderBytes, ReadHeaderTimeout: 30 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	if err := ConfigureServer(server, 100); err != nil {
		t.Fatal(err)
	}
	listener := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.ServeTLS(listener, "", "") }()
	defer func() { _ = server.Close(); <-served }()
	dial := func(ctx context.Context) (net.Conn, error) {
		config := pkitest.Load(t, pki.Files{CA: files.CA}).ClientConfig("server")
		config.NextProtos = []string{"h2"}
		here, there := net.Pipe()
		listener.conns <- there
		conn := tls.Client(here, config)
		return conn, conn.HandshakeContext(ctx)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for range 8 << 10 {
		_ = encoder.WriteField(hpack.HeaderField{Name: "a", Value: ""})
	}
	for name, tc := range map[string]struct {
		flood func(f *http2.Framer) error
		ends  bool // by the server
		reads bool // the client
	}{
		"PING": {ends: true, flood: func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }},
		"SETTINGS": {flood: func(f *http2.Framer) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		}},
		"CONTINUATION": {ends: true, reads: true, flood: func() func(f *http2.Framer) error {
			begun := false
			return func(f *http2.Framer) error {
				if !begun {
					begun = true
					return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes()})
				}
				return f.WriteContinuation(1, false, block.Bytes())
			}
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if tc.reads {
				go func() { _, _ = io.Copy(io.Discard, conn) }()
			}
			var out bytes.Buffer
			framer := http2.NewFramer(&out, nil)
			out.WriteString(http2.ClientPreface)
			if err := framer.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
			before := inUse()
			sent := int64(0)
			for err == nil && sent < flood {
				for range 100 {
					if err := tc.flood(framer); err != nil {
						t.Fatal(err)
					}
				}
				var n int64
				n, err = out.WriteTo(conn)
				sent += n
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the server neither takes more than %d KiB of it nor ends the connection", sent>>10)
			}
			if tc.ends && err == nil {
				t.Errorf("the server takes %d KiB of it", sent>>10)
			}
			if got := inUse() - before; got > kept {
				t.Errorf("%d KiB of it leave %d KiB in memory, want at most %d", sent>>10, got>>10, kept>>10)
			}
			s := &Shared{Dial: dial, Spread: 1, Streams: 10, IdleTimeout: time.Minute}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := s.RoundTrip(r)
			if err != nil {
				t.Fatalf("somebody else: %v", err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			s.Retire()
		})
	}
}

// inUse is how many bytes of the heap are.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
