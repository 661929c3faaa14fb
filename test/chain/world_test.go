package chain

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// token is the hub user's.
var token = canary(canaries["a token of the hub"])

// world is the three processes in a row.
type world struct {
	t                  *testing.T
	dir                string
	hubCA, agentCA     *pki.CA
	server, agent, api *process
	// address is the proxy API's, and user what its clients believe.
	address string
	user    *pki.Reloader
	// targets are connections to the managed kube-apiserver that are no TLS.
	targets <-chan net.Conn
}

func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// options change how a world is made.
type options struct {
	verbosity int
	// between returns the address at which clients reach a port of the proxy
	// server, "clients" or "agents".
	between func(w *world, port, address string) string
}

func start(t *testing.T, managed http.Handler, o options) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), hubCA: pkitest.NewCA(t, "hub"), agentCA: pkitest.NewCA(t, "agents")}
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	if o.between == nil {
		o.between = func(_ *world, _, address string) string { return address }
	}
	verbosity := flag("v", o.verbosity)

	clients := w.issue("server", w.hubCA, w.hubCA, pki.Leaf{CommonName: string(identity.RolePeer), IPs: local, Server: true, Client: true})
	agents := w.issue("server-agents", w.hubCA, w.agentCA, pki.Leaf{CommonName: "proxy-server", IPs: local, Server: true})
	w.server = startProcess(t, "proxy-server", verbosity,
		flag("server-cert", clients.Cert), flag("server-key", clients.Key), flag("server-ca-cert", clients.CA),
		flag("cluster-cert", agents.Cert), flag("cluster-key", agents.Key), flag("cluster-ca-cert", agents.CA),
		flag("server-bind-address", "127.0.0.1"), flag("agent-bind-address", "127.0.0.1"), flag("health-bind-address", "127.0.0.1"),
		flag("server-port", 0), flag("agent-port", 0), flag("health-port", 0), flag("admin-port", 0))
	ports := w.server.says(`Proxy server started.* clients="([^"]+)" agents="([^"]+)"`)

	var kubeconfig string
	kubeconfig, w.targets = startManagedAPI(t, w.dir, managed)
	host, port, err := net.SplitHostPort(o.between(w, "agents", ports[2]))
	if err != nil {
		t.Fatal(err)
	}
	leaf := pki.Leaf{CommonName: identity.AgentCommonName(cluster), Organizations: identity.AgentOrganizations(cluster), DNSNames: []string{identity.HandlerHost(cluster)}, Server: true, Client: true}
	own := w.issue("agent", w.agentCA, w.hubCA, leaf)
	w.agent = startProcess(t, "proxy-agent", verbosity,
		flag("agent-cert", own.Cert), flag("agent-key", own.Key), flag("ca-cert", own.CA),
		flag("proxy-server-host", host), flag("proxy-server-port", port), flag("agent-id", "agent"),
		flag("agent-identifiers", identity.Identifiers(identity.Hosts(cluster, identity.DefaultAgentNamespace))),
		flag("cluster-name", cluster), flag("kubeconfig", kubeconfig), flag("handler-port", 0), flag("exposed-services", writeExposed(t, w.dir)),
		flag("health-server-host", "127.0.0.1"), flag("health-server-port", 0), flag("admin-bind-address", "127.0.0.1"), flag("admin-server-port", 0))

	inner := w.issue("api", w.hubCA, w.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true})
	serving := w.issue("serving", w.hubCA, w.hubCA, pki.Leaf{CommonName: "proxy-api", IPs: local, Server: true})
	w.api = startProcess(t, "proxy-api", verbosity,
		flag("proxy-server", o.between(w, "clients", ports[1])), flag("proxy-ca-cert", inner.CA), flag("proxy-cert", inner.Cert), flag("proxy-key", inner.Key),
		flag("agent-ca-cert", agents.CA), flag("server-cert", serving.Cert), flag("server-key", serving.Key),
		flag("server-bind-address", "127.0.0.1"), flag("server-port", 0), flag("health-bind-address", "127.0.0.1"), flag("health-port", 0),
		flag("namespace", namespace), flag("kubeconfig", startHubAPI(t, w.dir, token)))
	w.address = w.api.says(`"Serving" address="([^"]+)"`)[1]
	w.user = pkitest.Load(t, pki.Files{CA: serving.CA})
	w.waitForCluster()
	return w
}

func (w *world) issue(name string, ca, trusted *pki.CA, leaf pki.Leaf) pki.Files {
	w.t.Helper()
	return pkitest.Issue(w.t, filepath.Join(w.dir, name), ca, leaf, trusted)
}

// waitForCluster waits until a request goes all the way.
func (w *world) waitForCluster() {
	w.t.Helper()
	client := w.client(1)
	eventually(w.t, "the cluster answers", func() bool {
		resp, err := client.Do(w.request(http.MethodGet, "/version", nil))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK
	})
}

// eventually waits for what another process does.
var eventually = wait.Poll{Every: 50 * time.Millisecond, For: testTimeout}.Until

// client speaks HTTP/1.1 or HTTP/2 to the proxy API.
func (w *world) client(major int) *http.Client {
	transport := &http.Transport{TLSClientConfig: w.user.ClientConfig("127.0.0.1"), Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetHTTP1(major == 1)
	transport.Protocols.SetHTTP2(major == 2)
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// request is one of the hub's user to the cluster.
func (w *world) request(method, path string, body io.Reader) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "https://"+w.address+"/"+cluster+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// dial is a TLS connection to the proxy API, of which raw is what is below.
func (w *world) dial() (conn *tls.Conn, raw net.Conn) {
	w.t.Helper()
	raw, err := net.Dial("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { raw.Close() })
	conn = tls.Client(connect.BelowTLS(raw), w.user.ClientConfig("127.0.0.1"))
	if err := conn.Handshake(); err != nil {
		w.t.Fatal(err)
	}
	return conn, raw
}

// connect sends CONNECT and wants 200.
func (w *world) connect(target string) (conn *tls.Conn, raw net.Conn) {
	w.t.Helper()
	conn, raw = w.dial()
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Bearer %s\r\n\r\n", target, target, token)
	resp, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn}, 16), &http.Request{Method: http.MethodConnect})
	if err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("CONNECT %s: %v, %v, want 200", target, resp, err)
	}
	return conn, raw
}

// oneByte keeps a bufio.Reader from reading what follows an answer.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), 1)]) }

// wantCutOff reads what is left, which must not end as if that were all.
func wantCutOff(t *testing.T, who string, r io.Reader) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, r); ended <- err }()
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s read a clean end", who)
		}
	case <-time.After(testTimeout):
		t.Errorf("%s still waits", who)
	}
}
