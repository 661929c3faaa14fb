package hostile

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// answer is what a kube-apiserver in an attacker's hands says.
type answer struct {
	name, text string
	// forever is repeated after text until the connection ends.
	forever string
	// code is what the client must see; 0 if there is no answer that it could wait
	// for to the end.
	code int
	// cut says that the client must see that the body is not complete.
	cut bool
	// rightUpgrade says that this is a good answer to a wish for WebSockets.
	rightUpgrade bool
}

func evilAnswers(victim string) []answer {
	redirect := func(location string) string {
		return "HTTP/1.1 302 Found\r\nLocation: " + location + "\r\nContent-Length: 0\r\n\r\n"
	}
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	return []answer{
		{name: "redirect elsewhere", text: redirect("https://evil.example/"), code: 502},
		{name: "redirect to another host", text: redirect("//evil.example/"), code: 502},
		{name: "redirect with a backslash", text: redirect(`/\evil.example/`), code: 302},
		{name: "redirect to the victim", text: redirect("/" + victim + "/api"), code: 302},
		{name: "redirect up to the victim", text: redirect("../../../../../" + victim + "/api"), code: 302},
		{name: "redirect up, encoded", text: redirect("/%2e%2e/%2e%2e/" + victim + "/api"), code: 502},
		{name: "change of protocol", text: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", code: 502, rightUpgrade: true},
		{name: "change to another protocol", text: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", code: 502},
		{name: "change to no protocol", text: "HTTP/1.1 101 Switching Protocols\r\n\r\n", code: 502},
		{name: "hints without end", forever: "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", code: 502},
		{name: "header without end", text: ok, forever: "X-A: " + strings.Repeat("x", 1000) + "\r\n", code: 502},
		{name: "line without end", text: ok + "X-A: ", forever: strings.Repeat("x", 1000), code: 502},
		{name: "body without end", text: ok + "\r\n", forever: strings.Repeat("x", 1000)},
		{name: "body shorter than it says", text: ok + "Content-Length: 1000\r\n\r\nshort", code: 200, cut: true},
		{name: "body longer than it says", text: ok + "Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", code: 200},
		{name: "two lengths", text: ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc", code: 502},
		{name: "length and chunks", text: ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", code: 200},
		{name: "negative length", text: ok + "Content-Length: -1\r\n\r\n", code: 502},
		{name: "no chunk", text: ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", code: 200, cut: true},
		{name: "strange coding", text: ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", code: 502},
		{name: "blank in a name", text: ok + "X A: b\r\nContent-Length: 0\r\n\r\n", code: 200},
		{name: "status 0", text: "HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n", code: 502},
		{name: "status 99", text: "HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n", code: 502},
		{name: "another protocol", text: "SSH-2.0-evil\r\n", code: 502},
		{name: "nothing", code: 502},
	}
}

// evilAPI is a kube-apiserver in an attacker's hands.
type evilAPI struct {
	answers []answer
	address string
	// busy names the evil answers that have not ended, by their connections.
	busy sync.Map
	// mixed is what came after a request and was no other of the agent.
	mixed chan string
	agent *process
}

func (e *evilAPI) serve(conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		number, evil := strings.CutPrefix(r.URL.Path, "/evil/")
		if !evil {
			text := "for " + r.Header.Get("Impersonate-User")
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			continue
		}
		i, err := strconv.Atoi(number)
		if err != nil || i >= len(e.answers) {
			return
		}
		e.answer(conn, reader, e.answers[i])
		return
	}
}

func (e *evilAPI) answer(conn net.Conn, reader io.Reader, a answer) {
	e.busy.Store(conn, a.name)
	defer e.busy.Delete(conn)
	_, err := io.WriteString(conn, a.text)
	for a.forever != "" && err == nil {
		_, err = io.WriteString(conn, a.forever)
	}
	if tlsConn, ok := conn.(*tls.Conn); ok {
		_ = tlsConn.CloseWrite()
	}
	if rest, _ := io.ReadAll(reader); len(rest) > 0 && !bytes.Contains(rest, []byte("\r\nHost: "+e.address+"\r\n")) {
		e.mixed <- fmt.Sprintf("%s: %q", a.name, rest)
	}
}

// evilCluster adds a cluster with a kube-apiserver like that and an agent as it
// should be.
func (s *Suite) evilCluster(t *testing.T, name string, answers []answer) *evilAPI {
	t.Helper()
	e := &evilAPI{answers: answers, mixed: make(chan string, 1000)}
	pair, err := pki.NewCA("evil", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseCA(pair)
	if err != nil {
		t.Fatal(err)
	}
	listener := listenTLS(t, write(t, issue(t, ca, serverLeaf(), 0), ca.CertPEM()), tls.NoClientCert, "http/1.1")
	e.address = listener.Addr().String()
	go acceptAll(listener, e.serve)
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + e.address, CertificateAuthorityData: ca.CertPEM()}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "agent"}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	s.makeCluster(t, name)
	agent := s.agent(t, name, issue(t, s.ca(t, agentSigner), agentLeaf(name), 0), fmt.Sprint(s.Lab.AgentPort),
		"--kubeconfig="+file, "--agent-identifiers="+identity.Identifiers(identity.Hosts(name, identity.DefaultAgentNamespace)))
	log := watchFiles(t, agent.Log, "", nil)
	t.Cleanup(func() { log.lacks(t, "panic") })
	e.agent = agent
	return e
}

// testEvilCluster sends requests to a cluster whose kube-apiserver answers what no
// real one does. The user gets an error that says so, and no connection leads to
// where it should not (CVE-2018-1002105, CVE-2020-8559, CVE-2022-3172).
func (s *Suite) testEvilCluster(t *testing.T) {
	const name = "evil-cluster"
	e := s.evilCluster(t, name, evilAnswers(s.victim()))
	token := s.hubUser(t, "hostile-evil", mayReach(name, "*"), mayStream(name))
	api := s.watch(t, proxyAPI, requestsInFlight)
	want := "for cluster:hub:system:serviceaccount:default:hostile-evil"
	for _, d := range s.endpoints(t, name) {
		good := func() error {
			code, _, body := d.send(t, d.request(http.MethodGet, "/good", token, ""))
			if code != http.StatusOK || body != want {
				return fmt.Errorf("%d %q", code, body)
			}
			return nil
		}
		e.agent.Await(t, "the evil cluster to answer at "+d.name, good)
		for i, a := range e.answers {
			for kind, lines := range map[string][]string{"read": nil, "write": {"Content-Length: 0"}, "upgrade": socket} {
				t.Run(d.name+"/"+a.name+"/"+kind, func(t *testing.T) {
					method := http.MethodGet
					if kind == "write" {
						method = http.MethodPost
					}
					d.askEvil(t, a, d.request(method, fmt.Sprint("/evil/", i), token, "", lines...), kind)
					if err := good(); err != nil {
						t.Errorf("the next request of somebody else: %v", err)
					}
				})
			}
		}
	}
	eventually(t, "evil answers to be over", func() error {
		waiting := map[string]int{}
		e.busy.Range(func(_, name any) bool {
			waiting[name.(string)]++
			return true
		})
		if len(waiting) > 0 {
			return fmt.Errorf("connections wait with the answers %v", waiting)
		}
		now, err := api.value(t.Context())
		streams, err1 := s.podMetric(t.Context(), proxyAPI, fmt.Sprintf("cluster_proxy_api_streams{managed_cluster=%q", name))
		if err := errors.Join(err, err1); err != nil {
			return err
		}
		if now > api.before || streams > 0 {
			return fmt.Errorf("%v requests are in flight at the proxy API, %v before, and %v streams to %s", now, api.before, streams, name)
		}
		return nil
	})
	for len(e.mixed) > 0 {
		t.Errorf("what clients sent later went to the cluster: %s", <-e.mixed)
	}
	api.lacks(t, "Panic")
}

// askEvil sends a request that gets an evil answer, and then one without a
// credential on the same connection.
func (d endpoint) askEvil(t *testing.T, a answer, request, kind string) {
	t.Helper()
	conn := d.dial(t, "http/1.1")
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(reader, &http.Request{Method: method})
	if err != nil {
		if !a.cut { // it may have been cut off before its header was on the way
			t.Errorf("no answer: %v", err)
		}
		return
	}
	// Closing its body would read on, and it may have no end; conn is closed.
	if kind == "upgrade" && a.rightUpgrade {
		if response.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("answered %d, want 101", response.StatusCode)
		}
		return
	}
	if a.cut && (response.StatusCode == http.StatusBadGateway || response.StatusCode == http.StatusServiceUnavailable) {
		return // the same, and somebody on the way says so
	}
	want, wantCut := a.code, a.cut
	if d.name == "aggregated" { // the hub's kube-apiserver has words of its own
		switch {
		case kind == "upgrade" && (want == http.StatusOK || want == http.StatusFound):
			want, wantCut = http.StatusServiceUnavailable, false
		case want == http.StatusFound:
			want = http.StatusBadGateway
		}
	}
	if response.StatusCode != want && want != 0 {
		t.Errorf("answered %d, want %d", response.StatusCode, want)
	}
	if to := response.Header.Get("Location"); to != "" && (!strings.HasPrefix(to, d.prefix+"/") || strings.HasPrefix(to, "//") || strings.Contains(to, `\`)) {
		t.Errorf("sent on to %q", to)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if cut := err != nil; cut != wantCut {
		t.Errorf("the body is %.100q, %v; want it cut off: %v", body, err, wantCut)
	}
	if a.code == 0 || response.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	if _, err := io.WriteString(conn, requestText(http.MethodGet, d.prefix+"/good", d.host, "", "")); err != nil {
		return // closed, which is as good
	}
	if next, err := http.ReadResponse(reader, nil); err == nil {
		got, _ := io.ReadAll(next.Body)
		if text := string(got); strings.Contains(text, "for cluster:") || strings.Contains(text, "poison") {
			t.Errorf("the next request on the connection, without a credential, is answered %d %.300s", next.StatusCode, got)
		}
	}
}
