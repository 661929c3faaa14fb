package httprelay

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// BenchmarkShared sends small requests with small answers, from eight goroutines for each processor,
// through Shared to a server of ConfigureServer.
func BenchmarkShared(b *testing.B) {
	ca := pkitest.NewCA(b, "hub")
	files := pkitest.Issue(b, filepath.Join(b.TempDir(), "server"), ca, pki.Leaf{CommonName: "server", DNSNames: []string{"server"}, Server: true}, ca)
	config := pkitest.Load(b, files).ServerConfig(tls.NoClientCert)
	config.NextProtos = []string{"h2"}
	server := &http.Server{TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })}
	if err := ConfigureServer(server, 1000); err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	defer server.Close()
	s := &Shared{Spread: 4, Streams: 250, IdleTimeout: time.Minute, Dial: func(ctx context.Context) (net.Conn, error) {
		config := pkitest.Load(b, pki.Files{CA: files.CA}).ClientConfig("server")
		config.NextProtos = []string{"h2"}
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", listener.Addr().String())
	}}
	defer s.Retire()
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://server/", http.NoBody)
			if err != nil {
				b.Error(err)
				return
			}
			if err := exchange(s.RoundTrip, r); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
