package fleetview

import (
	"net/http"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

func TestRelay(t *testing.T) {
	const api = "/api/v1/namespaces/shop"
	a, b := newCluster("a", shop+"/web", shop+"/one", api+"/services/web"), newCluster("b", shop+"/web")
	tests := map[string]struct {
		method, url string
		// to is a cluster, and want the URL that it gets; or want is what the message says.
		to, want string
	}{
		"log":                {"GET", shop + "/web@b/log?container=c&follow=true&tailLines=5", "b", shop + "/web/log?container=c&follow=true&tailLines=5"},
		"log of one":         {"GET", shop + "/one/log?z=1&a=2&a=1", "a", shop + "/one/log?z=1&a=2&a=1"},
		"log of several":     {"GET", shop + "/web/log", "", "web@a, web@b"},
		"log of none":        {"GET", shop + "/none/log", "", "not found"},
		"exec":               {"POST", shop + "/web@b/exec?command=sh&command=-c&command=ls+-l%20x&stdin=true", "b", shop + "/web/exec?command=sh&command=-c&command=ls+-l%20x&stdin=true"},
		"attach":             {"GET", shop + "/web%40b/attach", "b", shop + "/web/attach"},
		"portforward":        {"POST", shop + "/one/portforward?ports=80", "a", shop + "/one/portforward?ports=80"},
		"proxy":              {"PUT", api + "/services/web@a/proxy/a%2Fb/c%20d//e/?x=%2F;y", "a", api + "/services/web/proxy/a%2Fb/c%20d//e/?x=%2F;y"},
		"proxy, slash":       {"GET", api + "/services/web@a/proxy/", "a", api + "/services/web/proxy/"},
		"proxy, no slash":    {"GET", api + "/services/web@a/proxy", "a", api + "/services/web/proxy"},
		"proxy with @":       {"GET", api + "/services/web@a/proxy/x@b/y@a", "a", api + "/services/web/proxy/x@b/y@a"},
		"proxy of a port":    {"GET", api + "/services/https:web:8443@a/proxy/x", "a", api + "/services/https:web:8443/proxy/x"},
		"proxy of one":       {"GET", api + "/services/https:web:8443/proxy/x", "a", api + "/services/https:web:8443/proxy/x"},
		"proxy of a node":    {"GET", "/api/v1/nodes/n1@b/proxy/metrics/cadvisor", "b", "/api/v1/nodes/n1/proxy/metrics/cadvisor"},
		"proxy with dots":    {"GET", api + "/services/web@a/proxy/../x", "", "dots"},
		"proxy, hidden dots": {"GET", api + "/services/web@a/proxy/%2e%2E/x", "", "dots"},
		"hidden subresource": {"GET", api + "/services/web@a%2Fproxy/x", "", "slash"},
		"no cluster":         {"GET", shop + "/web@x/log", "", "not found"},
	}
	view := testView(a, b)
	view.Writes = fleet.WritesAny
	for name, test := range tests {
		got := New(Options{}).request(t, view, test.method, test.url, "")
		if test.to == "" {
			if got.code < 400 || !strings.Contains(got.status.Message, test.want) {
				t.Errorf("%s: got %d %q, want a refusal with %q", name, got.code, got.body, test.want)
			}
			continue
		}
		if want := test.method + " " + test.want; got.header.Get("Relayed-To") != test.to || got.body != want {
			t.Errorf("%s: got %q to %q, want %q to %q", name, got.body, got.header.Get("Relayed-To"), want, test.to)
		}
	}
	got := New(Options{}).request(t, view, http.MethodGet, "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/vm@b/console", "", "Connection", "Upgrade", "Upgrade", "websocket")
	if got.header.Get("Relayed-To") != "b" {
		t.Errorf("an upgrade: got %d %q, want it relayed", got.code, got.body)
	}
}

func TestResourceRules(t *testing.T) {
	a, b := newCluster("a", shop+"/web", "/api/v1/namespaces/other/pods/x", "/apis/apps/v1/namespaces/shop/deployments/d"), newCluster("b", "/api/v1/namespaces/shop")
	view := testView(a, b)
	view.Resources = []fleet.ResourceRule{{Group: "", Resource: "pods", Namespaces: []string{"shop"}}, {Group: "apps", Resource: "*"}, {Group: "", Resource: "namespaces", Namespaces: []string{"shop"}}}
	unlisted := view
	unlisted.UnlistedCluster = "b"
	elsewhere := view
	elsewhere.UnlistedCluster = "x"
	tests := map[string]struct {
		view fleet.View
		url  string
		// want is what the answer has.
		want string
	}{
		"its namespace":            {view, shop, `"name":"web"`},
		"all namespaces":           {view, "/api/v1/pods", `"name":"web"`},
		"another namespace":        {view, "/api/v1/namespaces/other/pods", "in namespaces shop only"},
		"an object of it":          {view, shop + "/web@a", `"name":"web@a"`},
		"an object elsewhere":      {view, "/api/v1/namespaces/other/pods/x@a", "in namespaces shop only"},
		"a group":                  {view, "/apis/apps/v1/deployments", `"name":"d"`},
		"a namespace":              {view, "/api/v1/namespaces/shop", `"name":"shop"`},
		"a namespace of a cluster": {view, "/api/v1/namespaces/shop@b", `"name":"shop@b"`},
		"another resource":         {view, "/api/v1/secrets", `does not have resource "secrets" of API group ""`},
		"unlisted":                 {unlisted, "/api/v1/namespaces/x/secrets/y@a?b=1&a=2", "GET /api/v1/namespaces/x/secrets/y@a?b=1&a=2"},
		"unlisted, streaming":      {unlisted, "/api/v1/nodes/n/proxy/", "GET /api/v1/nodes/n/proxy/"},
		"unlisted, a watch":        {unlisted, "/api/v1/secrets?watch=1", "GET /api/v1/secrets?watch=1"},
		"unlisted elsewhere":       {elsewhere, "/api/v1/secrets", `has resource "secrets" of API group "" on no cluster that you may reach`},
	}
	for name, test := range tests {
		got := New(Options{}).request(t, test.view, http.MethodGet, test.url, "")
		if body := strings.ReplaceAll(got.body, `\"`, `"`); !strings.Contains(body, test.want) {
			t.Errorf("%s: got %d %q, want %q", name, got.code, body, test.want)
		}
		if relayed := got.header.Get("Relayed-To") == "b"; relayed != strings.HasPrefix(test.want, "GET ") {
			t.Errorf("%s: relayed %v", name, relayed)
		}
	}
}
