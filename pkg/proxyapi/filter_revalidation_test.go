package proxyapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authn"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authz"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/outage"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

// openStream is one that a user has open.
type openStream struct {
	conn   net.Conn
	answer *bufio.Reader
	ended  chan struct{}
}

// streamKinds are requests without a natural end.
var streamKinds = map[string]string{
	"watch":   "GET /cluster1/api/v1/pods?watch=1 HTTP/1.1\r\nHost: x\r\n",
	"logs":    "GET /cluster1/api/v1/namespaces/a/pods/b/log?follow=true HTTP/1.1\r\nHost: x\r\n",
	"exec":    "GET /cluster1/api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
	"connect": "CONNECT cluster1:443 HTTP/1.1\r\nHost: cluster1:443\r\n",
}

// endless answers every stream and goes on until it is ended.
func endless(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	_ = http.NewResponseController(rw).Flush()
	<-r.Context().Done()
}

func (w *world) openStream(config *tls.Config, text, header string) *openStream {
	w.t.Helper()
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	fmt.Fprint(conn, text, header, "\r\n")
	s := &openStream{conn: conn, answer: bufio.NewReader(conn), ended: make(chan struct{})}
	resp, err := http.ReadResponse(s.answer, &http.Request{Method: strings.Fields(text)[0]})
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatalf("%q answered %d, want 200 or 101", text, resp.StatusCode)
	}
	go func() {
		defer close(s.ended)
		_, _ = io.Copy(io.Discard, s.answer)
	}()
	return s
}

func (s *openStream) open() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Streams end when their user's token or right is withdrawn. Those of others go on.
func TestStreamsOfWithdrawnUsersEnd(t *testing.T) {
	w := start(t, func(o *Options) { o.RevalidateStreams = 200 * time.Millisecond })
	w.waitForCAs()
	w.agent("cluster1", http.HandlerFunc(endless), "cluster1")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	w.hub.Forward("cluster1:443", silent.Addr().String())
	for _, user := range []string{"token-lost", "right-lost", "bystander"} {
		w.api.User(user, user)
	}
	w.api.Allow("token-lost * clusters/proxy cluster1", "token-lost create clusters/stream cluster1",
		"bystander * clusters/proxy cluster1", "bystander create clusters/stream cluster1")
	w.api.Allow("right-lost * clusters/proxy cluster1", "right-lost create clusters/stream cluster1", "proxied * clusters/proxy cluster1", "proxied create clusters/stream cluster1")
	plain := w.client().Transport.(*http.Transport).TLSClientConfig
	front := w.withCertificate("front-proxy", "front-proxy-client").Transport.(*http.Transport).TLSClientConfig
	lost, others := map[string]*openStream{}, map[string]*openStream{}
	for kind, text := range streamKinds {
		for _, user := range []string{"token-lost", "right-lost", "bystander"} {
			header := "Authorization: Bearer " + user + "\r\n"
			if kind == "connect" {
				header = "Proxy-" + header
			}
			for i := range 2 {
				s := w.openStream(plain, text, header)
				if name := fmt.Sprint(user, " ", kind, " ", i); user == "bystander" {
					others[name] = s
				} else {
					lost[name] = s
				}
			}
		}
		if kind != "connect" { // the hub's kube-apiserver has no way for it
			text = strings.Replace(text, "/cluster1/", scope.ClustersPath+"cluster1/proxy/", 1)
			lost["aggregated "+kind] = w.openStream(front, text, "X-Remote-User: proxied\r\n")
		}
	}

	w.api.Set(func(h *hubapi.Hub) {
		delete(h.Users, "token-lost")
		h.Errors["token-lost"] = "[invalid bearer token, service account token has been invalidated]"
		h.Rules = h.Rules[:4]
	})
	for name, s := range lost {
		select {
		case <-s.ended:
		case <-time.After(30 * time.Second):
			t.Errorf("%s goes on", name)
		}
	}
	for name, s := range others {
		if !s.open() {
			t.Errorf("%s ended, want it open", name)
		}
	}
	for reason, want := range map[string]float64{"unauthenticated": 8, "forbidden": 11} {
		if got := testutil.ToFloat64(w.server.metrics.Withdrawn.WithLabelValues(reason)); got != want {
			t.Errorf("%v streams ended as %s, want %v", got, reason, want)
		}
	}
}

// A hub that is away takes nothing from streams that are
// open. Nothing that it said before is remembered here.
func TestHubThatIsAwayWithdrawsNothing(t *testing.T) {
	w := start(t)
	for name, tc := range map[string]struct {
		change func(*hubapi.Hub)
		want   string
	}{
		"nothing changed": {func(*hubapi.Hub) {}, ""},
		"hub away":        {func(h *hubapi.Hub) { h.Down = true }, ""},
		"right lost":      {func(h *hubapi.Hub) { h.Rules = nil }, "forbidden"},
		"token lost": {func(h *hubapi.Hub) {
			h.Users, h.Errors = nil, map[string]string{"jane": "[invalid bearer token, service account token has been invalidated]"}
		}, "unauthenticated"},
		"right lost, hub away": {func(h *hubapi.Hub) { h.Rules, h.Down = nil, true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w.api.Set(func(h *hubapi.Hub) {
				h.Down, h.Users, h.Errors, h.Rules = false, map[string]authenticationv1.UserInfo{"jane": {Username: "jane"}}, nil, []string{"jane * clusters/proxy cluster1"}
			})
			v, _ := w.joinStream(t, "jane")
			w.api.Set(tc.change)
			for _, g := range v.Groups {
				if got := v.Withdrawn(t.Context(), g); got != tc.want {
					t.Errorf("withdrawn as %q, want %q", got, tc.want)
				}
			}
		})
	}
}

// Streams of one caller are one question, whatever else differs.
func TestQuestions(t *testing.T) {
	who := &user.DefaultInfo{Name: "jane", Groups: []string{"devs"}}
	ask := func(verb, cluster string, leaves bool, header http.Header) string {
		key := filter.QuestionOf(&http.Request{Header: header}, &scope.Scope{Kind: scope.Cluster, User: who, Info: &request.RequestInfo{Verb: verb}, Target: route.Target{Cluster: cluster}, Leaves: leaves})
		return string(key[:])
	}
	jane := func() http.Header { return http.Header{"Authorization": {"Bearer jane"}} }
	with := func(name, value string) http.Header {
		header := jane()
		header.Set(name, value)
		return header
	}
	want := ask("watch", "cluster1", false, jane())
	for name, header := range map[string]http.Header{
		"the same": jane(), "another agent": with("User-Agent", "x"), "another address": with("X-Forwarded-For", "192.0.2.1"), "another request": with("X-Request-Id", "1"),
	} {
		if ask("watch", "cluster1", false, header) != want {
			t.Errorf("%s: another question", name)
		}
	}
	for name, got := range map[string]string{
		"verb": ask("get", "cluster1", false, jane()), "cluster": ask("watch", "cluster2", false, jane()), "stream": ask("watch", "cluster1", true, jane()),
		"token": ask("watch", "cluster1", false, with("Authorization", "Bearer bob")), "impersonation": ask("watch", "cluster1", false, with("Impersonate-User", "bob")),
		"WebSocket token": ask("watch", "cluster1", false, with("Sec-Websocket-Protocol", "x")),
	} {
		if got == want {
			t.Errorf("another %s: the same question", name)
		}
	}
	// A front proxy's headers may have any names, such as Remote-User.
	for _, other := range []*user.DefaultInfo{{Name: "bob", Groups: []string{"devs"}}, {Name: "jane"}, {Name: "jane", Groups: []string{"devs"}, UID: "1"}, {Name: "jane", Groups: []string{"devs"}, Extra: map[string][]string{"a": {"b"}}}} {
		if who = other; ask("watch", "cluster1", false, jane()) == want {
			t.Errorf("user %+v of the same front proxy: the same question", other)
		}
	}
}

// TestSlowEndIsCountedOnce has a stream that takes longer to end than until its caller is
// looked at again, beside one of theirs that began meanwhile.
func TestSlowEndIsCountedOnce(t *testing.T) {
	m := metrics.New(prometheus.NewRegistry())
	v := filter.NewRevalidation(&filter.Filters{Metrics: m}, time.Hour)
	asked := &http.Request{Header: http.Header{}}
	rs := &scope.Scope{Kind: scope.Cluster, Info: &request.RequestInfo{Verb: "watch"}, Target: route.Target{Cluster: "cluster1"}, User: &user.DefaultInfo{Name: "jane"}}
	endAll := func() {
		for _, g := range slices.Collect(maps.Values(v.Groups)) {
			v.End(t.Context(), g, "forbidden")
		}
	}
	var ended int
	join := func() (leave func()) {
		end := context.CancelCauseFunc(func(err error) {
			ended++
			if err == nil || !strings.Contains(err.Error(), "your access was revoked: you have no right") {
				t.Errorf("the stream ends with %v, want it to say that the right is gone", err)
			}
		})
		return v.Join(asked, rs, &end)
	}
	leaveSlow := join()
	endAll()
	endAll()
	leaveNext := join()
	leaveSlow()
	endAll()
	leaveNext()
	if got := testutil.ToFloat64(m.Withdrawn.WithLabelValues("forbidden")); got != 2 || ended != 2 || len(v.Groups) != 0 {
		t.Errorf("%v streams were counted and %d ended, want 2; %d groups are left", got, ended, len(v.Groups))
	}
}

// joinStream has a stream of jane's with a token, about which a revalidation asks that looks by
// itself in an hour.
func (w *world) joinStream(t *testing.T, token string) (*filter.Revalidation, *authn.Authenticator) {
	t.Helper()
	hub := w.api.Client(t)
	outage := outage.New(hub, 0, w.server.metrics.Outage, w.server.metrics.PastAnswers)
	authorizer, err := authz.NewAuthorizer(hub, outage, &fakeViews{})
	if err != nil {
		t.Fatal(err)
	}
	authenticator, err := authn.NewAuthenticator(hub, nil, outage)
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() { _ = authenticator.Run(running) })
	t.Cleanup(func() { stop(); background.Wait() })
	f := &filter.Filters{Clusters: fakeClusters{"cluster1": {}}, Authorizer: authorizer, Authenticator: authenticator, Metrics: w.server.metrics}
	r := httptest.NewRequest(http.MethodGet, "/cluster1/api/v1/pods?watch=1", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	rs, err := scope.Endpoints{}.NewScope(r)
	if err != nil {
		t.Fatal(err)
	}
	rs.User = &user.DefaultInfo{Name: "jane"}
	v := filter.NewRevalidation(f, time.Hour)
	var end context.CancelCauseFunc
	t.Cleanup(v.Join(filter.KeepAsked(r), rs, &end))
	return v, authenticator
}

// TestFloodHidesNoWithdrawal has a flood of unknown credentials come from the address of a
// user whose token is withdrawn. It is not among those that were good lately any more, as
// after the first 401 of a cluster.
func TestFloodHidesNoWithdrawal(t *testing.T) {
	w := start(t)
	v, authenticator := w.joinStream(t, "withdrawn")
	gone, cancel := context.WithCancel(t.Context())
	cancel() // so that refusals are not held back
	flood := httptest.NewRequestWithContext(gone, http.MethodGet, "/", nil)
	for admitted := true; admitted; { // requests from the same address
		_, _, err := authenticator.Authenticate(flood, "cluster1")
		admitted = err == nil
	}
	for _, g := range v.Groups {
		if got := v.Withdrawn(t.Context(), g); got != "unauthenticated" {
			t.Errorf("beside a flood the stream of a withdrawn token ends as %q, want %q", got, "unauthenticated")
		}
	}
}
