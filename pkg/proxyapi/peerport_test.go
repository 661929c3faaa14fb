package proxyapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/replica"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// startWithPeers starts a proxy API that has a port for peers, and returns the port's
// address.
func startWithPeers(t *testing.T, change ...func(*Options)) (*world, string) {
	t.Helper()
	port, err := ports.Next()
	if err != nil {
		t.Fatal(err)
	}
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	w := start(t, append(change, func(o *Options) { o.PeerBindAddress, o.PeerPort, o.Peers = "127.0.0.1", port, []string{at} })...)
	wait.Poll{Every: 5 * time.Millisecond}.Success(t, "the port for peers", func() error {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return w, at
}

// as sends a request to the port for peers with a certificate.
func (w *world) as(t *testing.T, files pki.Files, method, url string, body []byte) (int, string, error) {
	t.Helper()
	config := pkitest.Load(t, files).ClientConfig(identity.ProxyAPIPeerHost)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(replica.PeerHeader, w.server.peers.ID)
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// TestPeerPortRefuses asks the port for peers with every certificate but a replica's.
func TestPeerPortRefuses(t *testing.T) {
	w, at := startWithPeers(t)
	v := (&version.Clock{}).Now()
	w.server.positions.RecordPage("jane", v, 0, true, map[string]string{"uid": "100"})
	messages, _ := w.server.positions.Export(0)
	var message []byte
	for message = range messages {
		message = bytes.Clone(message)
	}
	other := pkitest.NewCA(t, "another")
	w.newCA("users")
	agent := pki.Leaf{CommonName: identity.AgentCommonName("cluster1"), Organizations: identity.AgentOrganizations("cluster1"), Client: true}
	ofReplica := w.issue("a replica", w.hubCA, peerLeaf(), w.hubCA)
	for name, files := range map[string]pki.Files{
		"none":                                {CA: ofReplica.CA},
		"a client":                            w.issue("a client", w.hubCA, pki.Leaf{CommonName: string(identity.RoleClient), Organizations: []string{identity.Organization}, Client: true}, w.hubCA),
		"a proxy server":                      w.issue("a proxy server", w.hubCA, pki.Leaf{CommonName: string(identity.RolePeer), DNSNames: []string{identity.ProxyAPIPeerHost}, Client: true, Server: true}, w.hubCA),
		"an agent":                            w.issue("an agent", w.agentCA, agent, w.hubCA),
		"an agent of the hub's CA":            w.issue("an odd agent", w.hubCA, agent, w.hubCA),
		"a user":                              w.issue("a user", w.cas["users"], pki.Leaf{CommonName: "jane", Organizations: []string{"system:masters"}, Client: true}, w.hubCA),
		"a replica of an agent's CA":          w.issue("a", w.agentCA, peerLeaf(), w.hubCA),
		"a replica of another CA":             w.issue("b", other, peerLeaf(), w.hubCA),
		"a replica that is a server only":     w.issue("c", w.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), DNSNames: []string{identity.ProxyAPIPeerHost}, Server: true}, w.hubCA),
		"the proxy API's, of its users' port": w.issue("d", w.hubCA, pki.Leaf{CommonName: "proxy-api", DNSNames: []string{identity.ProxyAPIPeerHost}, Client: true, Server: true}, w.hubCA),
	} {
		for _, request := range []struct {
			method, path string
			body         []byte
		}{{"POST", replica.GreetPath, []byte(`{"id":"x","port":1}`)}, {"GET", replica.PositionsPath + "/" + v.String() + "?owner=jane", nil}, {"POST", replica.PositionsPath, message}, {"GET", replica.SessionsPath, nil}, {"DELETE", replica.SessionsPath + "/x", nil}} {
			code, text, err := w.as(t, files, request.method, "https://"+at+request.path, request.body)
			if err == nil && code != http.StatusForbidden {
				t.Errorf("%s: %s %s: got %d %q, want 403 or no TLS", name, request.method, request.path, code, text)
			}
		}
	}
	if got := testutil.ToFloat64(w.server.metrics.Rejected.WithLabelValues(metrics.RejectedPeer)); got != 4*5 {
		t.Errorf("counted %v refusals, want those of 4 certificates of the hub's CA that are good for clients, 5 each", got)
	}
	if addresses, _ := w.server.peers.Live(); len(addresses) > 0 {
		t.Errorf("got peers %v, want none", addresses)
	}
	// The other port knows no such paths.
	response, err := w.client().Get(w.url + replica.PositionsPath + "/" + v.String())
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode == http.StatusOK {
		t.Error("a user has got a position")
	}
	for name, request := range map[string]struct {
		method, path, body string
		want               int
	}{
		"a version":            {"GET", replica.PositionsPath + "/" + v.String() + "?owner=jane", "", 200},
		"another user's":       {"GET", replica.PositionsPath + "/" + v.String() + "?owner=joe", "", 404},
		"one of nobody":        {"GET", replica.PositionsPath + "/" + (version.Version{Time: v.Time + 1}).String() + "?owner=jane", "", 404},
		"no version":           {"GET", replica.PositionsPath + "/48151", "", 400},
		"positions":            {"POST", replica.PositionsPath, string(message), 204},
		"nonsense":             {"POST", replica.PositionsPath, "nonsense", 400},
		"too many positions":   {"POST", replica.PositionsPath, string(message) + strings.Repeat("x", position.MaxMessage), 400},
		"no greeting":          {"POST", replica.GreetPath, "nonsense", 400},
		"a greeting of nobody": {"POST", replica.GreetPath, `{"port":1}`, 400},
		"a greeting too long":  {"POST", replica.GreetPath, `{"id":"x","addresses":["` + strings.Repeat("x", replica.MaxGreeting) + `"]}`, 400},
		"a greeting":           {"POST", replica.GreetPath, `{"id":"x","port":-1}`, 200},
		"a wrong method":       {"DELETE", replica.PositionsPath, "", 405},
		"another path":         {"GET", "/readyz", "", 404},
	} {
		code, text, err := w.as(t, ofReplica, request.method, "https://"+at+request.path, []byte(request.body))
		if err != nil || code != request.want {
			t.Errorf("a replica, %s: got %d %q, %v, want %d", name, code, text, err, request.want)
		}
	}
}

// TestOnlyReplicasAreBelieved has something else where a peer is looked for.
func TestOnlyReplicasAreBelieved(t *testing.T) {
	w := &world{t: t, dir: t.TempDir(), hubCA: pkitest.NewCA(t, "hub"), agentCA: pkitest.NewCA(t, "agents")}
	source := pkitest.Load(t, w.issue("this", w.hubCA, peerLeaf(), w.hubCA))
	named := func(commonName string) pki.Leaf {
		return pki.Leaf{CommonName: commonName, DNSNames: []string{identity.ProxyAPIPeerHost}, Server: true, Client: true}
	}
	unnamed := peerLeaf()
	unnamed.DNSNames = []string{"cluster-proxy-addon-user"}
	for name, test := range map[string]struct {
		files pki.Files
		want  bool
	}{
		"a replica":               {w.issue("a", w.hubCA, peerLeaf(), w.hubCA), true},
		"a proxy server":          {w.issue("b", w.hubCA, named(string(identity.RolePeer)), w.hubCA), false},
		"a client":                {w.issue("c", w.hubCA, named(string(identity.RoleClient)), w.hubCA), false},
		"an agent":                {w.issue("d", w.agentCA, named(identity.AgentCommonName("cluster1")), w.hubCA), false},
		"a replica of another CA": {w.issue("e", w.agentCA, peerLeaf(), w.hubCA), false},
		"another name":            {w.issue("f", w.hubCA, unnamed, w.hubCA), false},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{ErrorLog: relay.Discard, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":"other"}`) })}
		ended := make(chan error, 1)
		go func() {
			ended <- server.Serve(tls.NewListener(listener, pkitest.Load(t, test.files).ServerConfig(tls.RequireAndVerifyClientCert)))
		}()
		p := replica.New(nil, 1, new(position.Store), replica.PeerTransport(source), metrics.New(prometheus.NewRegistry()))
		greet := func() bool {
			p.Add(listener.Addr().String())
			p.GreetAll(t.Context(), false)
			p.Client.CloseIdleConnections()
			addresses, _ := p.Live()
			return len(addresses) > 0
		}
		greet()
		got := greet()                                 // the second time with a session to resume
		for i := 0; test.want && !got && i < 10; i++ { // a busy machine may take longer than a greeting has
			got = greet()
		}
		if got != test.want {
			t.Errorf("%s: got a peer: %v, want one: %v", name, got, test.want)
		}
		server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}

// TestPositionsSurvive ends a proxy API, whose peer then knows its positions.
func TestPositionsSurvive(t *testing.T) {
	w, at := startWithPeers(t)
	source := pkitest.Load(t, w.issue("other", w.hubCA, peerLeaf(), w.hubCA))
	config := source.ServerConfig(tls.RequireAndVerifyClientCert)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other := replica.New([]string{at}, listener.Addr().(*net.TCPAddr).Port, new(position.Store), replica.PeerTransport(source), metrics.New(prometheus.NewRegistry()))
	other.Positions.Ask = other.Ask
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- other.Run(ctx) }()
	go func() { ended <- other.Serve(ctx, source, tls.NewListener(listener, config)) }()
	defer func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	v, missed := (&version.Clock{}).Now(), (&version.Clock{Replica: 1}).Now()
	w.server.positions.RecordPage("jane", v, 0, true, map[string]string{"uid": "100"})
	wait.Poll{Every: 5 * time.Millisecond}.Success(t, "the peer", func() error {
		if addresses, _ := w.server.peers.Live(); len(addresses) != 1 {
			return errors.New("it has not greeted")
		}
		return nil
	})
	find := func(what string, v version.Version, want bool) {
		t.Helper()
		if got, ok := other.Positions.Find(t.Context(), v, "jane"); ok != want || want && got["uid"] != "100" {
			t.Errorf("%s: got %v, %v, want %v", what, got, ok, want)
		}
	}
	find("while it runs", v, true)
	find("a version of nobody", missed, false)
	w.stop()
	if err := w.ended(); err != nil {
		t.Fatal(err)
	}
	find("when it has ended", v, true)
	find("a version of nobody", missed, false)
}

// TestReplacedPeerCertificate has a replica with a certificate of a CA that is not trusted any more, on a
// connection from before.
func TestReplacedPeerCertificate(t *testing.T) {
	w, at := startWithPeers(t)
	client := &http.Client{Transport: replica.PeerTransport(pkitest.Load(t, w.issue("old", w.hubCA, peerLeaf(), w.hubCA)))}
	defer client.CloseIdleConnections()
	greet := func() (int, error) {
		response, err := client.Post("https://"+at+replica.GreetPath, "application/json", strings.NewReader(`{"id":"x"}`))
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	if code, err := greet(); err != nil || code != http.StatusOK {
		t.Fatalf("got %d, %v, want 200", code, err)
	}
	next := pkitest.NewCA(t, "next")
	w.issue("client", next, peerLeaf(), next)
	if err := w.server.proxy.Load(); err != nil {
		t.Fatal(err)
	}
	if code, err := greet(); err == nil && code != http.StatusForbidden {
		t.Errorf("when its CA is not trusted any more: got %d, want 403", code)
	}
}
