package proxyapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOutagesEnd runs what a Server runs in the background through an outage of the
// hub: what the hub withdrew meanwhile is refused as soon as it can be asked again.
func TestOutagesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := hubapi.New()
		api.User("token", "jane")
		hub, err := kubernetes.NewForConfig(&rest.Config{Host: "http://hub", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
			Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				answer := httptest.NewRecorder()
				api.ServeHTTP(answer, r)
				if err := r.Context().Err(); err != nil {
					return nil, err
				}
				return answer.Result(), nil
			})})
		if err != nil {
			t.Fatal(err)
		}
		o := NewOptions()
		o.ProxyServer, o.Namespace = "unused:1", "addons"
		o.ProxyCACert, o.ProxyCert, o.ProxyKey, o.AgentCACert, o.ServerCert, o.ServerKey = "unused", "unused", "unused", "unused", "unused", "unused"
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		parts, err := newParts(o, s.metrics, hub, fakeClusters{}, &fakeViews{}, &fakePolicies{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var background sync.WaitGroup
		defer func() { stop(); background.Wait() }()
		for _, run := range parts.background {
			background.Go(func() {
				if err := run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		known := func() bool {
			r := httptest.NewRequest(http.MethodGet, "/cluster1/version", nil)
			r.Header.Set("Authorization", "Bearer token")
			u, _, err := parts.authenticator.Authenticate(r, "cluster1")
			return err == nil && u != nil && u.GetName() == "jane"
		}
		if !known() {
			t.Fatal("jane is not known")
		}
		api.Set(func(h *hubapi.Hub) { h.Down = true })
		time.Sleep(10 * time.Second) // no cache has the answer any more
		if !known() || testutil.ToFloat64(s.metrics.Outage) != 1 {
			t.Errorf("in an outage jane is known: %v, gauge %v; want true, 1", known(), testutil.ToFloat64(s.metrics.Outage))
		}
		api.Set(func(h *hubapi.Hub) { h.Down, h.Users = false, nil })
		time.Sleep(4 * time.Second)
		if got := testutil.ToFloat64(s.metrics.Outage); known() || got != 0 {
			t.Errorf("4 s after the outage jane, whom the hub does not know any more, is known: %v, gauge %v; want 0", known(), got)
		}
	})
}
