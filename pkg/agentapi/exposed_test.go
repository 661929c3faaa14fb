package agentapi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got, leftOut, err := ParseExposedServices(map[string]string{
		"services": "- {namespace: default, service: hello, port: \"8000\", protocol: http}\n- {namespace: monitoring, service: prometheus}\n",
		"more":     "[{\"namespace\": \"default\", \"service\": \"web\", \"port\": \"https\"}]",
		"again":    "- {namespace: monitoring, service: prometheus}",
		"numbers":  "- {namespace: default, service: hello, port: 9090, clusters: [c1], clusterSets: [prod], forwardAuthorization: true, anonymous: true}",
		"empty":    "",
	})
	if err != nil || leftOut != nil {
		t.Fatal(err, leftOut)
	}
	want := ExposedServices{
		{Namespace: "monitoring", Service: "prometheus"},
		{Namespace: "default", Service: "web", Port: "https"},
		{Namespace: "default", Service: "hello", Port: "9090", Clusters: []string{"c1"}, ClusterSets: []string{"prod"}, ForwardAuthorization: true, Anonymous: true},
		{Namespace: "default", Service: "hello", Port: "8000", Protocol: "http"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again, _, err := ParseExposedServices(got.Data())
	if diff := cmp.Diff(want, again); err != nil || diff != "" {
		t.Errorf("what Data makes is read differently: %v (-want +got):\n%s", err, diff)
	}
	if again, _, err := ParseExposedServices(ExposedServices(nil).Data()); err != nil || len(again) != 0 {
		t.Errorf("an empty list comes back as %v, %v", again, err)
	}
}

// TestWrongEntries has an entry with a mistake beside good ones, which count.
func TestWrongEntries(t *testing.T) {
	for content, want := range map[string]string{
		"- {namespace: a, service: b, ports: x}":                                  "unknown field",
		"- {namespace: a}":                                                        "service",
		"- {service: b}":                                                          "namespace",
		"- {namespace: a, service: b.c}":                                          "service",
		"- {namespace: a, service: -1password}":                                   "name of a Service",
		"- null":                                                                  "namespace",
		"- {namespace: a/b, service: b}":                                          "namespace",
		"- {namespace: '*', service: b}":                                          "namespace",
		"- {namespace: a, service: b, port: '0'}":                                 "1 to 65535",
		"- {namespace: a, service: b, port: '65536'}":                             "1 to 65535",
		"- {namespace: a, service: b, port: '080'}":                               "1 to 65535",
		"- {namespace: a, service: b, port: 'a b'}":                               "port",
		"- {namespace: a, service: b, protocol: udp}":                             "protocol",
		"- {namespace: a, service: b, protocol: unix}":                            "protocol",
		"- {namespace: a, service: b, clusters: ['']}":                            "clusters: cluster name is empty",
		"- {namespace: a, service: b, clusters: ['*']}":                           "clusters: cluster name",
		"- {namespace: a, service: b, clusterSets: ['']}":                         "clusterSets",
		"- {namespace: a, service: b, clusterSets: [global]}":                     "leave clusters and clusterSets out",
		"- {namespace: a, service: b, protocol: tcp, forwardAuthorization: true}": "protocol tcp",
		"- {namespace: a, service: b, protocol: tcp, anonymous: true}":            "protocol tcp",
	} {
		list, leftOut, err := ParseExposedServices(map[string]string{"good": "- {namespace: x, service: web}", "services": "- {namespace: a, service: 1password-connect}\n" + content + "\n- {namespace: a, service: '169'}"})
		if err != nil || leftOut == nil || !strings.Contains(leftOut.Error(), want) || !strings.Contains(leftOut.Error(), "entry 2 ") {
			t.Errorf("ParseExposedServices(%q) leaves out %v, %v; want entry 2 for %q", content, leftOut, err, want)
		}
		if diff := cmp.Diff(ExposedServices{{Namespace: "x", Service: "web"}, {Namespace: "a", Service: "1password-connect"}, {Namespace: "a", Service: "169"}}, list); diff != "" {
			t.Errorf("beside %q (-want +got):\n%s", content, diff)
		}
	}
	for content, want := range map[string]string{"namespace: a": "cannot unmarshal", "- {namespace: a, service: b}\n- {namespace: a}}": "yaml", "- {namespace: a, namespace: b, service: c}": "already set"} {
		if list, leftOut, err := ParseExposedServices(map[string]string{"good": "- {namespace: x, service: web}", "services": content}); err == nil || !strings.Contains(err.Error(), want) || list != nil || leftOut != nil {
			t.Errorf("ParseExposedServices(%q) = %v, %v, %v; want an error with %q", content, list, leftOut, err, want)
		}
	}
}

func TestTerms(t *testing.T) {
	list := ExposedServices{
		{Namespace: "a", Service: "any"},
		{Namespace: "a", Service: "port", Port: "8443"},
		{Namespace: "a", Service: "name", Port: "web", Protocol: "https"},
		{Namespace: "a", Service: "raw", Protocol: "tcp"},
	}
	for _, test := range []struct {
		want    Service
		allowed bool
	}{
		{Service{"a", "any", "1", "http"}, true},
		{Service{"a", "any", "", "https"}, true},
		{Service{"a", "port", "8443", "http"}, true},
		{Service{"a", "port", "8444", "http"}, false},
		{Service{"a", "port", "", "http"}, false},
		{Service{"a", "name", "web", "https"}, true},
		{Service{"a", "name", "web", "http"}, false},
		{Service{"a", "name", "443", "https"}, false},
		{Service{"a", "raw", "5432", "tcp"}, true},
		{Service{"a", "raw", "5432", "http"}, false},
		{Service{"b", "any", "1", "http"}, false},
		{Service{"a", "other", "1", "http"}, false},
		{Service{"", "", "", ""}, false},
	} {
		if got := list.Terms("c1", "", test.want); got != (ServiceTerms{Exposed: test.allowed}) {
			t.Errorf("Terms of %v = %+v", test.want, got)
		}
	}
	if ExposedServices(nil).Terms("c1", "", Service{"a", "any", "1", "http"}).Exposed {
		t.Error("an empty list allows something")
	}
}

// TestClusters asks for one Service in clusters and sets of them.
func TestClusters(t *testing.T) {
	want := Service{"a", "web", "80", "http"}
	list := ExposedServices{
		{Namespace: "a", Service: "web", Clusters: []string{"c1", "c2"}},
		{Namespace: "a", Service: "web", ClusterSets: []string{"prod"}, ForwardAuthorization: true},
		{Namespace: "a", Service: "web", Port: "80", Clusters: []string{"c4"}, ClusterSets: []string{"prod"}, Anonymous: true},
		{Namespace: "b", Service: "web"},
	}
	for _, test := range []struct {
		cluster, set string
		want         ServiceTerms
		entries      ExposedServices // of the agent
	}{
		{"c1", "", ServiceTerms{Exposed: true}, ExposedServices{{Namespace: "a", Service: "web"}, {Namespace: "b", Service: "web"}}},
		{"c2", "prod", ServiceTerms{true, true, true}, ExposedServices{{Namespace: "a", Service: "web"}, {Namespace: "a", Service: "web", ForwardAuthorization: true},
			{Namespace: "a", Service: "web", Port: "80"}, {Namespace: "b", Service: "web"}}},
		{"c3", "prod", ServiceTerms{true, true, true}, ExposedServices{{Namespace: "a", Service: "web", ForwardAuthorization: true}, {Namespace: "a", Service: "web", Port: "80"}, {Namespace: "b", Service: "web"}}},
		{"c4", "dev", ServiceTerms{Exposed: true, Anonymous: true}, ExposedServices{{Namespace: "a", Service: "web", Port: "80"}, {Namespace: "b", Service: "web"}}},
		{"c5", "dev", ServiceTerms{}, ExposedServices{{Namespace: "b", Service: "web"}}},
		{"c5", "", ServiceTerms{}, ExposedServices{{Namespace: "b", Service: "web"}}},
		{"", "", ServiceTerms{}, ExposedServices{{Namespace: "b", Service: "web"}}},
	} {
		if got := list.Terms(test.cluster, test.set, want); got != test.want {
			t.Errorf("cluster %q in set %q: %+v, want %+v", test.cluster, test.set, got, test.want)
		}
		if diff := cmp.Diff(test.entries, list.For(test.cluster, test.set)); diff != "" {
			t.Errorf("agent of %q in set %q (-want +got):\n%s", test.cluster, test.set, diff)
		}
	}
}

// FuzzCheck looks for words that pass and that make another host, or more than a
// host, when they are put into an address.
func FuzzCheck(f *testing.F) {
	f.Add("default", "web", "443", "https")
	f.Add("x", "169.254.169.254/?", "80", "http")
	f.Fuzz(func(t *testing.T, namespace, service, port, protocol string) {
		s := Service{namespace, service, port, protocol}
		if s.Check() != nil {
			return
		}
		if strings.Trim(namespace+service+port+protocol, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || service == "" || namespace == "" {
			t.Errorf("%v is accepted; want names of letters, digits and hyphens, and a namespace and a Service", s)
		}
	})
}
