package apihandler

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
)

// targets is a kube-apiserver, and Services, whose connections can fall silent.
type targets struct {
	conns chan net.Conn // on which a request or a connection has come
	agent *fixture
}

type connKey struct{}

// startTargets has requests wait for their answer, and upgrades and connections echo.
func startTargets(t *testing.T, tcp dial.TCP) *targets {
	s := &targets{conns: make(chan net.Conn, 1)}
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(net.Conn)
		if r.Header.Get("Upgrade") == "" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			s.conns <- conn
			<-r.Context().Done()
			return
		}
		hijacked, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(hijacked, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		s.conns <- conn
		_, _ = io.Copy(hijacked, hijacked)
		_ = hijacked.Close()
	})
	start := func(start func(*httptest.Server)) *httptest.Server {
		server := httptest.NewUnstartedServer(serve)
		server.EnableHTTP2 = true
		server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		}
		start(server)
		t.Cleanup(server.Close)
		return server
	}
	kubeAPIServer, web := start((*httptest.Server).StartTLS), start((*httptest.Server).Start)
	db, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	go func() {
		for {
			conn, err := db.Accept()
			if err != nil {
				return
			}
			s.conns <- conn
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	c := &cluster{names: map[string][]string{"web.default.svc": {"10.96.0.10"}, "db.default.svc": {"10.96.0.11"}}}
	list := agentapi.ExposedServices{{Namespace: "default", Service: "web"}, {Namespace: "default", Service: "db", Protocol: "tcp"}}
	services := Services{Exposed: func() agentapi.ExposedServices { return list }, Resolver: c, Roots: pki.NewReloader(pki.Files{}), connect: func(ctx context.Context, network, address string) (net.Conn, error) {
		to := db.Addr().String()
		if address == "10.96.0.10:80" {
			to = web.Listener.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}}
	s.agent = startWith(t, &rest.Config{Host: kubeAPIServer.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(kubeAPIServer)}}, Access{}, services, tcp)
	return s
}

// TestSilentTargetIsNoticed loses a target without a word, as a node that loses its power. The
// user's connection ends with an error, whatever it is, and whether or not the user sends.
func TestSilentTargetIsNoticed(t *testing.T) {
	const impatient = time.Second // as long as the kernel lets probes be apart
	upgrade := func(header http.Header) func(*testing.T, *targets) (io.Reader, io.Writer) {
		return func(t *testing.T, s *targets) (io.Reader, io.Writer) {
			conn := s.dial(t)
			r, err := http.NewRequest(http.MethodGet, s.agent.url+"/exec", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = header.Clone()
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "echo")
			if err := r.Write(conn); err != nil {
				t.Fatal(err)
			}
			from := bufio.NewReader(conn)
			if resp, err := http.ReadResponse(from, r); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("an upgrade is answered %+v, %v", resp, err)
			}
			return from, conn
		}
	}
	for name, begin := range map[string]func(*testing.T, *targets) (io.Reader, io.Writer){
		"an upgrade of the kube-apiserver": upgrade(http.Header{}),
		"an upgrade of a Service":          upgrade(wants("http", "default", "web", "80")),
		"CONNECT to a Service": func(t *testing.T, s *targets) (io.Reader, io.Writer) {
			conn, err := connect.Ask(t.Context(), s.dial(t), "db:5432", wants("tcp", "default", "db", "5432"))
			if err != nil {
				t.Fatal(err)
			}
			return conn, conn
		},
		"a request over HTTP/2": func(t *testing.T, s *targets) (io.Reader, io.Writer) {
			body, in := io.Pipe()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.agent.url+"/api", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := s.agent.proxyAPI(t).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = resp.Body.Close() })
			return resp.Body, in
		},
	} {
		for _, sends := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := startTargets(t, dial.TCP{KeepAlive: impatient, UserTimeout: impatient})
				from, to := begin(t, s)
				target := <-s.conns
				carriertest.Swallow(t, target)
				// It hears of nothing either, and its server waits for it.
				t.Cleanup(func() { _ = target.Close() })
				if sends {
					if _, err := io.WriteString(to, "is anybody there?"); err != nil {
						t.Fatal(err)
					}
				}
				ended := make(chan error, 1)
				go func() {
					_, err := io.Copy(io.Discard, from)
					ended <- err
				}()
				limit := time.NewTimer(30 * impatient) // the kernel's own verdict takes a quarter of an hour
				defer limit.Stop()
				select {
				case err := <-ended:
					if err == nil {
						t.Error("it ends as if it were complete")
					}
				case <-limit.C:
					t.Errorf("nothing is noticed (the user sends: %t)", sends)
				}
			})
		}
	}
}

// TestReadOfASilentTarget loses the other end of a connection that reads have to themselves. The
// read that is sent on it is answered on another one, long before TCP gives the silent one up.
func TestReadOfASilentTarget(t *testing.T) {
	conns := make(chan net.Conn, 100) // on which reads came that have a connection to themselves
	kubeAPIServer := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			conns <- r.Context().Value(connKey{}).(net.Conn)
		}
	}))
	kubeAPIServer.EnableHTTP2 = true
	kubeAPIServer.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	kubeAPIServer.StartTLS()
	t.Cleanup(kubeAPIServer.Close)
	agent := startWith(t, &rest.Config{Host: kubeAPIServer.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(kubeAPIServer)}}, Access{}, Services{}, dial.TCP{})
	client := agent.proxyAPI(t)
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = false // as the proxy API sends reads
	read := func() {
		t.Helper()
		resp, err := client.Get(agent.url + "/api")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("a read is answered %s, %v", resp.Status, err)
		}
	}
	var silent net.Conn
	for silent == nil {
		read()
		select {
		case silent = <-conns:
		default:
		}
	}
	carriertest.Swallow(t, silent)
	t.Cleanup(func() { _ = silent.Close() })
	began := time.Now()
	read()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the read is answered after %s, want it before TCP has given the connection up, after 30 s", took)
	}
}

// dial makes the proxy API's connection to the agent.
func (s *targets) dial(t *testing.T) net.Conn {
	t.Helper()
	config := s.agent.tls(t, s.agent.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true})
	raw, err := net.Dial("tcp", s.agent.url[len("https://"):])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return tls.Client(connect.BelowTLS(raw), config)
}
