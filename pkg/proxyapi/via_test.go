package proxyapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

func TestVia(t *testing.T) {
	hub := &rest.Config{Host: "https://10.96.0.1:443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("CA of this hub")}}
	own, err := scope.ViaHub(hub)
	if err != nil {
		t.Fatal(err)
	}
	if replica, err := scope.ViaHub(rest.CopyConfig(hub)); err != nil || replica != own {
		t.Errorf("another replica of the same hub is called %q, %v; want %q", replica, err, own)
	}
	other, err := scope.ViaHub(&rest.Config{Host: hub.Host, TLSClientConfig: rest.TLSClientConfig{CAData: []byte("CA of another hub")}})
	if err != nil || other == own {
		t.Errorf("another hub is called %q, %v, like this one", other, err)
	}
	for name, test := range map[string]struct {
		lines []string
		want  bool
	}{
		"none":                     {nil, false},
		"another proxy":            {[]string{"1.1 squid.example.org"}, false},
		"another hub":              {[]string{"1.1 " + string(other)}, false},
		"this hub":                 {[]string{"1.1 " + string(own)}, true},
		"this hub, then others":    {[]string{"1.1 squid.example.org, HTTP/2.0 " + string(own) + " (x)", "1.1 " + string(other)}, true},
		"this hub, then a line":    {[]string{"1.1 " + string(other), "1.1 " + string(own)}, true},
		"a name that begins alike": {[]string{"1.1 " + string(own) + "0"}, false},
		"nonsense":                 {[]string{"", ",", string(own)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := own.Check(http.Header{"Via": test.lines})
			var refused *status.Error
			if got := errors.As(err, &refused) && refused.ErrStatus.Code == http.StatusLoopDetected; got != test.want {
				t.Errorf("%v, want it refused as a loop: %v", err, test.want)
			}
		})
	}
	for _, forService := range []bool{false, true} {
		in := httptest.NewRequest(http.MethodGet, "/", nil)
		c := &scope.Scope{}
		if forService {
			c.Target.Service = agentapi.Service{Namespace: "ns", Service: "s", Port: "80"}
		}
		out := in.Clone(in.Context())
		out.Header.Set("Via", "1.1 squid.example.org")
		own.Add(&httputil.ProxyRequest{In: in.WithContext(context.WithValue(in.Context(), scope.Key{}, c)), Out: out})
		if looped := own.Check(out.Header) != nil; looped == forService || other.Check(out.Header) != nil {
			t.Errorf("for a Service: %v; after this hub, %q is a loop for it: %v", forService, out.Header, looped)
		}
	}
}
