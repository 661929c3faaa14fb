package httprelay

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"

	"golang.org/x/net/http/httpguts"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

var errNoListener = errors.New("nothing listens there")

// reader is a server or proxy on a request's path and how it recognizes upgrades.
type reader struct {
	name string
	is   func(*http.Request) bool
}

var readers = []reader{
	{"ReverseProxy", func(r *http.Request) (is bool) {
		proxy := &httputil.ReverseProxy{
			Rewrite:   func(p *httputil.ProxyRequest) { is = len(p.Out.Header["Upgrade"])+len(p.Out.Header["Connection"]) > 0 },
			Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, errNoListener }),
			ErrorLog:  log.New(io.Discard, "", 0),
		}
		proxy.ServeHTTP(httptest.NewRecorder(), r)
		return is
	}},
	{"net/http's client", func(r *http.Request) bool { // see Request.requiresHTTP1, Response.isProtocolSwitch
		return r.Header.Get("Upgrade") != "" && httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade")
	}},
	// SPDY and WebSocket servers there want more than this.
	{"kube-apiserver, by httpstream", httpstream.IsUpgradeRequest},
	{"kube-apiserver, by wsstream", wsstream.IsWebSocketRequest},
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestIsUpgrade also wants that whatever one of readers takes for an upgrade is
// one.
func TestIsUpgrade(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header http.Header
		want   bool
	}{
		{"nothing", http.Header{}, false},
		{"other wishes for the connection", http.Header{"Connection": {"keep-alive, close", "te"}}, false},
		{"a header of browsers", http.Header{"Upgrade-Insecure-Requests": {"1"}}, false},
		{"WebSocket", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, true},
		{"SPDY", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}, true},
		{"in other letters", http.Header{"Connection": {"uPGRADE"}, "Upgrade": {"WebSocket"}}, true},
		{"among others", http.Header{"Connection": {"keep-alive , Upgrade"}, "Upgrade": {"h2c, websocket"}}, true},
		{"in a second line", http.Header{"Connection": {"keep-alive", "Upgrade"}, "Upgrade": {"websocket"}}, true},
		{"in a word", http.Header{"Connection": {"xUpgradex"}, "Upgrade": {"websocket"}}, true},
		{"with a parameter", http.Header{"Connection": {"Upgrade;q=1"}, "Upgrade": {"websocket"}}, true},
		{"to nothing", http.Header{"Connection": {"Upgrade"}}, true},
		{"to an empty name", http.Header{"Connection": {"Upgrade"}, "Upgrade": {""}}, true},
		{"to a second name", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"", "websocket"}}, true},
		{"the connection is not told", http.Header{"Upgrade": {"websocket"}}, true},
		{"an empty name alone", http.Header{"Upgrade": {""}}, true},
	} {
		if got := IsUpgrade(tc.header); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		var seen []string
		for _, reader := range readers {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header = tc.header.Clone()
			if reader.is(r) {
				seen = append(seen, reader.name)
			}
		}
		if len(seen) > 0 && !tc.want {
			t.Errorf("%s: an upgrade for %q", tc.name, seen)
		}
	}
}

func TestWasAskedFor(t *testing.T) {
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	for _, tc := range []struct {
		code      int
		sent, got http.Header
		want      bool
	}{
		{0, nil, nil, false}, {99, nil, nil, false}, {99, upgrade, nil, false}, {100, nil, nil, false}, {100, upgrade, nil, false}, {103, nil, nil, false},
		{200, nil, nil, true}, {200, upgrade, nil, true}, {599, nil, nil, true}, {999, nil, nil, true}, {1000, nil, nil, false}, {1000, upgrade, nil, false},
		{101, nil, nil, false}, {101, nil, upgrade, false}, {101, upgrade, upgrade, true},
		{101, upgrade, http.Header{"Connection": {"upgrade"}, "Upgrade": {"WebSocket"}}, true},
		{101, upgrade, nil, false},
		{101, upgrade, http.Header{"Upgrade": {"websocket"}}, false},
		{101, upgrade, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, false},
		{101, http.Header{"Connection": {"Upgrade"}}, upgrade, false},
		{101, http.Header{"Connection": {"Upgrade"}, "Upgrade": {""}}, http.Header{"Connection": {"Upgrade"}, "Upgrade": {""}}, false},
		{101, http.Header{"Connection": {"xupgrade"}, "Upgrade": {"websocket"}}, upgrade, false},
		{101, http.Header{"Upgrade": {"websocket"}}, upgrade, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = tc.sent
		if WasAskedFor(&http.Response{StatusCode: tc.code, Header: tc.got, Request: r}) != tc.want {
			t.Errorf("%d with %v to a request with %v: want %v", tc.code, tc.got, tc.sent, tc.want)
		}
	}
}
