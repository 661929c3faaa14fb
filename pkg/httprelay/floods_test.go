package httprelay

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestFloods has clients send what costs a server more than them, for as long as it
// lets them. Somebody else is served beside it. The proxy API and the
// agents' handlers serve by ConfigureServer.
func TestFloods(t *testing.T) {
	ca := pkitest.NewCA(t, "hub")
	files := pkitest.Issue(t, filepath.Join(t.TempDir(), "server"), ca, pki.Leaf{CommonName: "server", DNSNames: []string{"server"}, Server: true}, ca)
	config := pkitest.Load(t, files).ServerConfig(tls.NoClientCert)
	config.NextProtos = []string{"h2"}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), TLSConfig: config, MaxHeaderBytes: MaxHeaderBytes, ReadHeaderTimeout: 30 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	if err := ConfigureServer(server, 100); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.ServeTLS(listener, "", "") }()
	defer func() { _ = server.Close(); <-served }()
	dial := func() (*tls.Conn, error) {
		config := pkitest.Load(t, pki.Files{CA: files.CA}).ClientConfig("server")
		config.NextProtos = []string{"h2"}
		return tls.Dial("tcp", listener.Addr().String(), config)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for range 8 << 10 {
		_ = encoder.WriteField(hpack.HeaderField{Name: "a", Value: ""})
	}
	for name, tc := range map[string]struct {
		flood func(f *http2.Framer) error
		ends  bool // by the server
	}{
		"PING": {flood: func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }},
		"SETTINGS": {flood: func(f *http2.Framer) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		}},
		"CONTINUATION": {ends: true, flood: func() func(f *http2.Framer) error {
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
			conn, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var out bytes.Buffer
			framer := http2.NewFramer(&out, nil)
			out.WriteString(http2.ClientPreface)
			if err := framer.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			// It never reads. The server must not keep answers for it without a bound.
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			sent := int64(0)
			for err == nil && sent < 4<<20 {
				for range 100 {
					if err := tc.flood(framer); err != nil {
						t.Fatal(err)
					}
				}
				var n int64
				n, err = out.WriteTo(conn)
				sent += n
			}
			if tc.ends && err == nil {
				t.Errorf("the server takes %d KiB of it", sent>>10)
			}
			s := &Shared{Dial: func(context.Context) (net.Conn, error) { return dial() }, Spread: 1, Streams: 10, IdleTimeout: time.Minute}
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
