package agentapi

import (
	"net/http"
	"testing"
)

func TestBegins(t *testing.T) {
	for name, want := range map[string]bool{
		"X-Remote-User": true, "x-remote-user": true, "X_REMOTE_USER": true, "x_remote-Extra-a": true, "X-Remote-": true,
		"X-Remote": false, "X-Remoted-User": false, "": false, "A-X-Remote-User": false,
	} {
		if Begins(name, FrontProxy) != want {
			t.Errorf("Begins(%q) is not %v", name, want)
		}
	}
}

func TestDelete(t *testing.T) {
	header := http.Header{"X_Forwarded_For": {"a"}, "forwarded": {"b"}, "X-Real-Ip": {"c"}, "Accept": {"d"}}
	if Delete(header, Forwarded); len(header) != 1 || header.Get("Accept") != "d" || Has(header, "Forwarded") {
		t.Errorf("left: %v, want Accept alone", header)
	}
}

func TestServiceGoesThereAndBack(t *testing.T) {
	for _, s := range []Service{
		{Namespace: "a", Service: "b", Port: "80", Protocol: "http"}, {Namespace: "a", Service: "b", Protocol: "tcp"},
	} {
		header := http.Header{}
		SetService(header, s)
		if got, err := ServiceOf(header); err != nil || got != s {
			t.Errorf("ServiceOf returned %+v, %v; want %+v", got, err, s)
		}
	}
	header := http.Header{}
	if SetService(header, Service{}); len(header) != 0 {
		t.Errorf("no Service is named by %v", header)
	}
}

func TestServiceRefusesTwoReadings(t *testing.T) {
	good := func() http.Header {
		header := http.Header{}
		SetService(header, Service{Namespace: "a", Service: "b", Port: "80", Protocol: "http"})
		return header
	}
	for what, spoil := range map[string]func(http.Header){
		"a header twice":             func(h http.Header) { h.Add(namespace, "c") },
		"a header in other spelling": func(h http.Header) { h["cluster_proxy_namespace"] = []string{"c"} },
		"a header of no meaning":     func(h http.Header) { h.Set(ForService+"Host", "c") },
		"no protocol":                func(h http.Header) { h.Del(protocol) },
		"a namespace with a dot":     func(h http.Header) { h.Set(namespace, "a.b") },
		"no Service":                 func(h http.Header) { h.Del(service) },
	} {
		header := good()
		if spoil(header); header != nil {
			if s, err := ServiceOf(header); err == nil {
				t.Errorf("%s: ServiceOf returned %+v, want an error", what, s)
			}
		}
	}
}
