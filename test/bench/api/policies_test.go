//go:build benchapi

package api

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const policed = "small GET beside "

// policySets are the AccessPolicies of a row: how many, and for whom; nobody is in group "nobody".
var policySets = []struct {
	name, group string
	n           int
}{{"no policy", "", 0}, {"1 policy that does not select", "nobody", 1}, {"10 policies that do", "", 10}}

// policies measures what AccessPolicies cost a request. BenchmarkDecide of pkg/accesspolicy has the same without the rest of the
// way, which is some hundred times as long. Direct access has no policies.
func (f figures) policies(t *testing.T, endpoints []suite.Endpoint, path string) {
	for round := range load.Rounds {
		for _, set := range policySets {
			if !load.Rows.MatchString(policed + set.name) {
				continue
			}
			t.Run(set.name, func(t *testing.T) {
				for i := range set.n {
					makePolicy(t, fmt.Sprint("bench-", i), set.group)
				}
				for _, endpoint := range load.InTurn(endpoints, round) {
					t.Logf("%s%s, %s (%d of %d)", policed, set.name, endpoint.Name, round+1, load.Rounds)
					ctx, cancel := context.WithTimeout(t.Context(), load.WarmUp+load.Measured)
					rate, took := load.Send(ctx, t, endpoint.Cfg, path, 1, http.StatusOK)
					cancel()
					if len(took) == 0 {
						continue
					}
					f.add(policed+set.name+", GETs per second", endpoint.Name, rate)
					f.add(policed+set.name+", GET p50 ms", endpoint.Name, took[len(took)/2].Seconds()*1e3)
					f.add(policed+set.name+", GET p99 ms", endpoint.Name, took[len(took)*99/100].Seconds()*1e3)
				}
			})
		}
	}
}

// makePolicy makes a policy of two rules that are true of reads, for as long as the test runs, and waits until it compiles.
func makePolicy(t *testing.T, name, group string) {
	spec := map[string]any{"rules": []any{
		map[string]any{"name": "read-only", "expression": "request.verb in ['get', 'list', 'watch']"},
		map[string]any{"name": "no-secrets", "expression": "request.resource != 'secrets' && cluster.labels[?'env'].orValue('') != 'none'"},
	}}
	if group != "" {
		spec["subjects"] = []any{map[string]any{"kind": "Group", "name": group}}
	}
	load.Installed.MakeOnHub(t, suite.AccessPolicies, "AccessPolicy", name, spec)
	suite.Eventually(t, "policy "+name+" to be compiled", func() error {
		policy, err := load.Installed.HubObjects(t, suite.AccessPolicies).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if conditions, _, _ := unstructured.NestedSlice(policy.Object, "status", "conditions"); len(conditions) == 0 {
			return fmt.Errorf("it has no conditions")
		}
		return nil
	})
}
