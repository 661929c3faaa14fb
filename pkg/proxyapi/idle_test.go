package proxyapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/pkitest"
)

// quiet is how long a stream may be idle.
const quiet = 20 * time.Minute

// memNet is a network in memory, on which time can be a test's own.
type memNet map[string]*bufconn.Listener

func (m memNet) listen(name string) net.Listener {
	m[name] = bufconn.Listen(1 << 20)
	return memListener{m[name]}
}

func (m memNet) dial(ctx context.Context, _, address string) (net.Conn, error) {
	conn, err := m[address].DialContext(ctx)
	return memConn{conn}, err
}

type memListener struct{ net.Listener }

func (l memListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return memConn{conn}, err
}

// memConn can be read after a deadline that has passed, which crypto/tls believes
// of temporary errors only.
type memConn struct{ net.Conn }

func (c memConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// inMemory is a door without a network, and the agent of cluster1 behind it.
func inMemory(t *testing.T, agent http.Handler) (network memNet, client *tls.Config) {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), hubCA: pkitest.NewCA(t, "hub"), agentCA: pkitest.NewCA(t, "agents")}
	own := w.issue("client", w.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}, w.hubCA)
	serving := w.issue("door", w.hubCA, pki.Leaf{CommonName: "server", DNSNames: []string{"door"}, Server: true}, w.hubCA)
	o := NewOptions()
	o.ProxyServer, o.ProxyCACert, o.ProxyCert, o.ProxyKey, o.AgentCACert = "unused:1", own.CA, own.Cert, own.Key, w.file("agent-ca.crt", w.agentCA.CertPEM())
	o.ServerCert, o.ServerKey, o.MinDrainDuration, o.Namespace = serving.Cert, serving.Key, 0, "addons"
	s := New(o)
	for _, source := range []*pki.Source{s.serving, s.proxy, s.inner} {
		if err := source.Load(); err != nil {
			t.Fatal(err)
		}
	}
	network = memNet{}
	s.pool = newPool(network.dial, s.inner.ClientConfig, s.metrics)
	parts, err := s.newParts(fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: configNamespace, Name: configName}, Data: map[string]string{
		"client-ca-file": string(w.hubCA.CertPEM()), "requestheader-client-ca-file": string(w.hubCA.CertPEM()),
	}}), fakeClusters{"cluster1": {}})
	if err != nil {
		t.Fatal(err)
	}
	leaf := pki.Leaf{CommonName: identity.AgentCommonName("cluster1"), DNSNames: []string{identity.HandlerHost("cluster1")}, Server: true}
	config := pkitest.Load(t, w.issue("agent", w.agentCA, leaf, w.hubCA)).ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	server := &http.Server{Handler: agent, TLSConfig: config}
	agents := network.listen(w.handlerAddress("cluster1"))
	go func() { _ = server.ServeTLS(agents, "", "") }()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = parts.callers.run(ctx) })
	doors := network.listen("door:443")
	running.Go(func() {
		h, err := s.newHandler(parts, ctx)
		if err == nil {
			err = s.serve(ctx, context.WithoutCancel(ctx), doors, h, func() {})
		}
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		s.pool.close()
		_ = server.Close()
	})
	return network, pkitest.Load(t, pki.Files{CA: filepath.Join(w.dir, "door-ca.crt")}).ClientConfig("door")
}

// TestIdleStreams leaves a watch and an upgraded connection alone for twenty
// minutes, in which every timer on the way goes off that wants to, and wants what
// comes then.
func TestIdleStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, config := inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				upgraded(t).ServeHTTP(w, r)
				return
			}
			for range 2 {
				fmt.Fprintln(w, "event")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(quiet)
			}
		}))
		dial := func(protocol string) *tls.Conn {
			t.Helper()
			raw, err := network.dial(t.Context(), "tcp", "door:443")
			if err != nil {
				t.Fatal(err)
			}
			own := config.Clone()
			own.NextProtos = []string{protocol}
			conn := tls.Client(raw, own)
			if err := conn.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			return conn
		}
		watching, err := new(http2.Transport).NewClientConn(dial("h2"))
		if err != nil {
			t.Fatal(err)
		}
		defer watching.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://door/cluster1/api/v1/pods?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := watching.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		events := bufio.NewReader(resp.Body)
		shell := dial("http/1.1")
		defer shell.Close()
		fmt.Fprint(shell, "POST /cluster1/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		typed := bufio.NewReader(shell)
		if resp, err := http.ReadResponse(typed, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", resp, err)
		}
		began := time.Now()
		for range 2 {
			if line, err := events.ReadString('\n'); line != "event\n" {
				t.Fatalf("after %s the watch gave %q, %v", time.Since(began), line, err)
			}
		}
		if since := time.Since(began); since < quiet {
			t.Fatalf("the second event came after %s: nothing was idle", since)
		}
		echo(t, shell, typed, "still here")
		_, _ = io.Copy(io.Discard, events) // the agent's next pause
	})
}
