package fallback

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

// testTimeout is long, since a machine may be busy with other tests.
const testTimeout = 2 * time.Minute

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// frontend is a way that clients have, and what a server needs for it.
type frontend struct {
	name  string
	flags func(*hub) []string // besides those of the ports
	dial  func(*hub, *testing.T) dialFunc
	// halfCloses says that one direction can be closed alone, if server and agent
	// are ours.
	halfCloses bool
	// closeErr is what Close of konnectivity's clients returns now and then after
	// a clean end: the end of the connection and that of its tunnel come at once,
	// and Close selects either.
	closeErr string
}

const tunnelClosed = "tunnel closed"

var frontends = []frontend{
	{name: "our dialer", flags: (*hub).portFlags, dial: (*hub).ourDialer, halfCloses: true},
	{name: "single-use client", flags: (*hub).portFlags, dial: (*hub).singleUse, closeErr: tunnelClosed},
	{name: "reusable client", flags: (*hub).portFlags, dial: (*hub).reusable, closeErr: tunnelClosed},
	{name: "HTTP CONNECT", flags: (*hub).connectFlags, dial: (*hub).connect, halfCloses: true},
	{name: "unix socket", flags: (*hub).socketFlags, dial: (*hub).socket, closeErr: tunnelClosed},
}

// TestCombinations is the table of old and new.
func TestCombinations(t *testing.T) {
	for _, pair := range [][2]string{{"our server", "our agent"}, {"our server", "konnectivity's agent"}, {"konnectivity's server", "konnectivity's agent"}} {
		server, agent := pair[0], pair[1]
		for _, f := range frontends {
			t.Run(server+"/"+agent+"/"+f.name, func(t *testing.T) {
				h := newHub(t)
				h.start(server, agent, f.flags(h))
				dial := f.dial(h, t)
				target := newTarget(t)
				f.halfCloses = f.halfCloses && agent == "our agent"
				f.exchanges(t, dial, target)
				targetCloses(t, dial, target)
			})
		}
	}
}

// exchanges sends bytes both ways, twice, and ends: by half if that is to be
// had.
func (f frontend) exchanges(t *testing.T, dial dialFunc, s *target) {
	t.Helper()
	for i := range 2 {
		name := fmt.Sprint("connection ", i)
		conn := mustDial(t, dial, s)
		sent := make([]byte, 1<<20)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(sent)
		failed := make(chan error, 1)
		go func() {
			_, err := conn.Write(append([]byte(name+"\n"), sent...))
			failed <- err
		}()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(conn, got); err != nil {
			t.Fatalf("reading what was sent back: %v", err)
		}
		if !bytes.Equal(got, sent) {
			t.Error("what came back is not what was sent")
		}
		if err := <-failed; err != nil {
			t.Error(err)
		}
		if f.halfCloses {
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Error(err)
			}
			if rest, err := io.ReadAll(conn); err != nil || string(rest) != "end" {
				t.Errorf("after CloseWrite %q and %v came, want \"end\"", rest, err)
			}
		}
		if err := conn.Close(); err != nil && err.Error() != f.closeErr {
			t.Errorf("closing: %v", err)
		}
		select {
		case h := <-s.of(name):
			if h.bytes != int64(len(sent)) || !errors.Is(h.err, io.EOF) {
				t.Errorf("the target had %d of %d bytes, then %v", h.bytes, len(sent), h.err)
			}
		case <-time.After(testTimeout):
			t.Fatal("the target did not hear of the end")
		}
	}
}

// targetCloses reads the last words of a target that closes by itself.
func targetCloses(t *testing.T, dial dialFunc, s *target) {
	t.Helper()
	conn := mustDial(t, dial, s)
	defer conn.Close()
	if _, err := io.WriteString(conn, "connection/speaker\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "bye" {
		t.Errorf("%q and %v came of a target that said \"bye\" and closed", got, err)
	}
}

func mustDial(t *testing.T, dial dialFunc, s *target) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel) // and not before: a single-use tunnel lives no longer
	conn, err := dial(ctx, "tcp", s.address())
	if err != nil {
		t.Fatalf("dialing: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// hub is the ports and certificates of one server and one agent.
type hub struct {
	t      *testing.T
	dir    string
	ports  []int
	client *pki.Reloader
}

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{t: t, dir: t.TempDir()}
	for range 6 {
		h.ports = append(h.ports, ports.Take(t))
	}
	hubCA, agentCA := pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "agents")
	serving := pki.Leaf{CommonName: "proxy-server", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}
	h.issue("server", hubCA, hubCA, serving)
	h.issue("server-agents", hubCA, agentCA, serving)
	h.issue("agent", agentCA, hubCA, pki.Leaf{CommonName: identity.AgentCommonName("cluster1"), Client: true})
	h.client = pkitest.NewReloader(t, hubCA, pki.Leaf{CommonName: string(identity.RoleClient), Client: true}, hubCA)
	return h
}

func (h *hub) path(name string) string { return filepath.Join(h.dir, name) }

func (h *hub) issue(name string, ca, trusted *pki.CA, leaf pki.Leaf) pki.Files {
	h.t.Helper()
	return pkitest.Issue(h.t, h.path(name), ca, leaf, trusted)
}

func (h *hub) clientAddress() string { return fmt.Sprint("127.0.0.1:", h.ports[0]) }

func (h *hub) portFlags() []string {
	return []string{"--mode=grpc", fmt.Sprint("--server-port=", h.ports[0]), "--server-bind-address=127.0.0.1",
		"--server-cert=" + h.path("server.crt"), "--server-key=" + h.path("server.key"), "--server-ca-cert=" + h.path("server-ca.crt")}
}

func (h *hub) connectFlags() []string { return append(h.portFlags(), "--mode=http-connect") }

func (h *hub) socketFlags() []string {
	return []string{"--mode=grpc", "--server-port=0", "--uds-name=" + h.path("socket")}
}

// start runs a server and an agent, and waits until the server has the agent.
func (h *hub) start(server, agent string, frontend []string) {
	h.t.Helper()
	if server != "konnectivity's server" {
		frontend = append(frontend, "--agent-identity=declared")
	}
	p := start(h.t, server, append(frontend,
		fmt.Sprint("--agent-port=", h.ports[1]), "--agent-bind-address=127.0.0.1", fmt.Sprint("--health-port=", h.ports[2]), "--health-bind-address=127.0.0.1",
		fmt.Sprint("--admin-port=", h.ports[3]), "--admin-bind-address=127.0.0.1",
		"--cluster-cert="+h.path("server-agents.crt"), "--cluster-key="+h.path("server-agents.key"), "--cluster-ca-cert="+h.path("server-agents-ca.crt"))...)
	a := start(h.t, agent,
		"--proxy-server-host=127.0.0.1", fmt.Sprint("--proxy-server-port=", h.ports[1]), "--health-server-host=127.0.0.1", fmt.Sprint("--health-server-port=", h.ports[4]),
		"--admin-bind-address=127.0.0.1", fmt.Sprint("--admin-server-port=", h.ports[5]), "--sync-interval=100ms", "--sync-interval-cap=500ms",
		"--ca-cert="+h.path("agent-ca.crt"), "--agent-cert="+h.path("agent.crt"), "--agent-key="+h.path("agent.key"))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	p.Await(h.t, "the server to have an agent", func() error {
		select {
		case <-a.Ended():
			h.t.Fatal("the agent has ended")
		default:
		}
		response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", h.ports[2]))
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

func (h *hub) clientTLS() *tls.Config { return h.client.ClientConfig("127.0.0.1") }

func (h *hub) ourDialer(t *testing.T) dialFunc {
	d := &tunnel.Dialer{ProxyServer: h.clientAddress(), TLS: h.clientTLS}
	t.Cleanup(func() { _ = d.Close() })
	return d.DialContext
}

func (h *hub) singleUse(*testing.T) dialFunc {
	return single(h.clientAddress(), grpc.WithTransportCredentials(credentials.NewTLS(h.clientTLS())))
}

func (h *hub) socket(*testing.T) dialFunc {
	return single("unix:"+h.path("socket"), grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func single(address string, options ...grpc.DialOption) dialFunc {
	return func(ctx context.Context, network, target string) (net.Conn, error) {
		made, err := konnectivity.CreateSingleUseGrpcTunnel(ctx, address, options...)
		if err != nil {
			return nil, err
		}
		return made.DialContext(ctx, network, target)
	}
}

func (h *hub) reusable(t *testing.T) dialFunc {
	made, err := konnectivity.CreateGRPCTunnel(t.Context(), h.clientAddress(), grpc.WithTransportCredentials(credentials.NewTLS(h.clientTLS())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	return made.DialContext
}

func (h *hub) connect(*testing.T) dialFunc {
	return func(ctx context.Context, _, target string) (net.Conn, error) {
		conn, err := (&tls.Dialer{Config: h.clientTLS()}).DialContext(ctx, "tcp", h.clientAddress())
		if err != nil {
			return nil, err
		}
		there, err := connect.Ask(ctx, conn, target, nil)
		if err != nil {
			_ = conn.Close()
		}
		return there, err
	}
}
