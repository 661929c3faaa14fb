package proxyagent

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

func TestConnDrainer(t *testing.T) {
	known := newServers(context.Background(), nil, pool.Config{}, dial.FullJitter)
	known.sessions["stays"], known.sessions["goes"], known.sessions["mute"] = &serverSession{}, &serverSession{draining: true}, &serverSession{unheard: true}
	upgrade := http.Header{"Upgrade": {"websocket"}, "Connection": {"keep-alive, Upgrade"}}
	for name, tc := range map[string]struct {
		through []string
		ending  bool
		major   int
		headers http.Header
		want    http.Header
	}{
		"nothing drains":             {through: []string{"stays"}, major: 2},
		"the server drains":          {through: []string{"goes"}, major: 2, want: http.Header{agentapi.Leaving: {"1"}}},
		"the one before it drains":   {through: []string{"stays", "goes"}, major: 2, want: http.Header{agentapi.Leaving: {"1"}}},
		"one that is not known":      {through: []string{"stays", "new"}, major: 2},
		"no one before it":           {through: []string{"stays", ""}, major: 2},
		"the server was lost":        {through: []string{"lost"}, major: 2, want: http.Header{agentapi.Leaving: {"1"}}},
		"the server is mute":         {through: []string{"mute"}, major: 2, want: http.Header{agentapi.Leaving: {"1"}}},
		"the one before it is mute":  {through: []string{"stays", "mute"}, major: 2},
		"the server drains, h1":      {through: []string{"goes"}, major: 1, want: http.Header{"Connection": {"close"}}},
		"the agent drains":           {through: []string{"stays"}, ending: true, major: 2, want: http.Header{agentapi.Leaving: {"1"}}},
		"the agent drains, h1":       {ending: true, major: 1, want: http.Header{"Connection": {"close"}}},
		"an upgrade":                 {through: []string{"goes"}, major: 1, headers: upgrade},
		"over konnectivity's stream": {major: 2},
	} {
		t.Run(name, func(t *testing.T) {
			drainer := newConnDrainer()
			drainer.servers.Store(known)
			drainer.ending.Store(tc.ending)
			var conn net.Conn = &net.TCPConn{}
			if tc.through != nil {
				conn = &handedConn{through: tc.through}
			}
			ctx := drainer.via(t.Context(), tls.Server(conn, &tls.Config{}))
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			r.ProtoMajor = tc.major
			for key, values := range tc.headers {
				r.Header[key] = values
			}
			got := httptest.NewRecorder()
			drainer.handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(got, r)
			for _, header := range []string{agentapi.Leaving, "Connection"} {
				if got.Header().Get(header) != tc.want.Get(header) {
					t.Errorf("%s: %q, want %q", header, got.Header().Get(header), tc.want.Get(header))
				}
			}
		})
	}
}

func TestConnectionsWithoutRequestsAreUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drainer := newConnDrainer()
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		drainer.watch(a, http.StateIdle)
		drainer.watch(b, http.StateIdle)
		if n := drainer.unused(); n != 0 {
			t.Errorf("%d are unused though their next request may be on its way", n)
		}
		time.Sleep(quiet)
		drainer.watch(b, http.StateActive)
		if n := drainer.unused(); n != 1 {
			t.Errorf("%d are unused, want the one without a request", n)
		}
		drainer.watch(a, http.StateClosed)
		if n := drainer.unused(); n != 0 {
			t.Errorf("%d are unused after the end", n)
		}
	})
}
