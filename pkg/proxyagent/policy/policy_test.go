package policy

import (
	"errors"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

var cluster1 = Policy{Cluster: "cluster1", AgentNamespace: "ns", KubeAPIServer: "10.96.0.1:443", Handler: "127.0.0.1:7443"}

func TestTarget(t *testing.T) {
	for address, want := range map[string]Target{
		"cluster1:443":    {Address: cluster1.KubeAPIServer},
		"cluster1:6443":   {Address: cluster1.KubeAPIServer},
		"cluster1.ns:443": {Address: cluster1.KubeAPIServer},
		identity.HandlerHost("cluster1") + ":7443": {Address: cluster1.Handler, Handler: true},
	} {
		got, err := cluster1.Target("tcp", address)
		if err != nil || got != want {
			t.Errorf("Target(tcp, %q) = %+v, %v; want %+v", address, got, err, want)
		}
	}
}

func TestDenied(t *testing.T) {
	for _, request := range []struct{ network, address, reason string }{
		{"udp", "cluster1:443", "network"},
		{"unix", "/var/run/docker.sock", "network"},
		{"tcp4", "cluster1:443", "network"},
		{"", "cluster1:443", "network"},
		{"tcp", "cluster1", "address"},
		{"tcp", "cluster1:", "address"},
		{"tcp", "", "address"},
		{"tcp", "cluster2:443", "destination"},
		{"tcp", "CLUSTER1:443", "destination"},
		{"tcp", "cluster1.:443", "destination"},
		{"tcp", "cluster1.other:443", "destination"},
		{"tcp", "localhost:443", "destination"},
		{"tcp", "127.0.0.1:7443", "destination"},
		{"tcp", "[::1]:7443", "destination"},
		{"tcp", "[::ffff:127.0.0.1]:7443", "destination"},
		{"tcp", "169.254.169.254:80", "destination"},
		{"tcp", "metadata.google.internal:80", "destination"},
		{"tcp", "kubernetes.default.svc:443", "destination"},
		{"tcp", "10.96.0.1:443", "destination"},
		{"tcp", identity.HandlerHost("cluster1") + ":443", "destination"},
		{"tcp", identity.HandlerHost("cluster1") + ":8093", "destination"},
		{"tcp", identity.HandlerHost("cluster2") + ":7443", "destination"},
	} {
		target, err := cluster1.Target(request.network, request.address)
		var denied *Denied
		if !errors.As(err, &denied) || denied.Reason != request.reason || target != (Target{}) {
			t.Errorf("Target(%q, %q) = %+v, %v; want denied for %q", request.network, request.address, target, err, request.reason)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "denied by policy") {
			t.Errorf("error %q does not begin with the words that clients look for", err)
		}
	}
}

// FuzzTarget looks for a request that makes the agent dial anything but the two
// addresses of its own configuration.
func FuzzTarget(f *testing.F) {
	f.Add("tcp", "cluster1:443")
	f.Add("tcp", "169.254.169.254:80")
	f.Add("unix", "/run/x")
	f.Fuzz(func(t *testing.T, network, address string) {
		target, err := cluster1.Target(network, address)
		if err == nil && target != (Target{Address: cluster1.KubeAPIServer}) && target != (Target{Address: cluster1.Handler, Handler: true}) {
			t.Fatalf("Target(%q, %q) = %+v", network, address, target)
		}
		if err != nil && target != (Target{}) {
			t.Fatalf("Target(%q, %q) returns both %+v and %v", network, address, target, err)
		}
	})
}
