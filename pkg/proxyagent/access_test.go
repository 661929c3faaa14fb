package proxyagent

import (
	"errors"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

// A cap that the agent could not enforce on raw connections closes them.
func TestOwnerClosesTheWayThatCannotBeLookedInto(t *testing.T) {
	destinations := policy.Policy{Cluster: "cluster1", KubeAPIServer: "10.0.0.1:6443", Handler: "127.0.0.1:7443"}
	handler := identity.HandlerHost("cluster1") + ":" + identity.HandlerPort
	for name, test := range map[string]struct {
		policy  ownerpolicy.Policy
		broken  error
		wantRaw bool
	}{
		"no caps":        {wantRaw: true},
		"only allows":    {policy: ownerpolicy.Policy{AllowedReservedNames: []string{"system:masters"}}, wantRaw: true},
		"read-only":      {policy: ownerpolicy.Policy{ReadOnly: true}},
		"no streams":     {policy: ownerpolicy.Policy{NoStreams: true}},
		"no Secrets":     {policy: ownerpolicy.Policy{NoSecrets: true}},
		"not understood": {broken: errors.New("broken")},
	} {
		decide := capped(destinations, func() (ownerpolicy.Policy, error) { return test.policy, test.broken })
		if _, err := decide("tcp", handler); err != nil {
			t.Errorf("%s: the handler: %v", name, err)
		}
		_, err := decide("tcp", "cluster1:443")
		var denied *policy.Denied
		if (err == nil) != test.wantRaw || err != nil && (!errors.As(err, &denied) || denied.Reason != "owner") {
			t.Errorf("%s: the kube-apiserver: %v, want it open: %v", name, err, test.wantRaw)
		}
		if _, err := decide("tcp", "example.org:443"); err == nil {
			t.Errorf("%s: dials anything", name)
		}
	}
}
