package proxyagent

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

func TestCarriersGoThroughHTTPSProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "hub.example:8091" {
			t.Errorf("asked for %q, want hub.example:8091", r.Host)
		}
		if r.Header.Get("Proxy-Authorization") != "Basic YWdlbnQ6b3Blbg==" { // agent:open
			http.Error(w, "who are you?", http.StatusProxyAuthRequired)
			return
		}
		conn, err := connect.Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "the server")
	}))
	defer proxy.Close()
	through := func(user *url.Userinfo) (net.Conn, error) {
		t.Setenv("HTTPS_PROXY", (&url.URL{Scheme: "http", User: user, Host: proxy.Listener.Addr().String()}).String())
		c := &carrierDialer{address: "hub.example:8091"}
		return c.connect(t.Context())
	}
	conn, err := through(url.UserPassword("agent", "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "the server" {
		t.Errorf("got %q, %v, want \"the server\"", got, err)
	}
	if _, err := through(nil); err == nil || !strings.Contains(err.Error(), "407 Proxy Authentication Required") {
		t.Errorf("error %v, want what the proxy says", err)
	}
}
