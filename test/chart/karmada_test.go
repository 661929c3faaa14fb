package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKarmada wants Karmada's API to be there if it is asked for, and nothing of it otherwise.
func TestKarmada(t *testing.T) {
	services := []string{"APIService/v1alpha1.cluster.karmada.io", "APIService/v1alpha1.search.karmada.io"}
	args := func(values string) (found []string) {
		for _, deployment := range mustRender(t, values).deployments(t) {
			for _, arg := range deployment.Spec.Template.Spec.Containers[0].Args {
				if strings.HasPrefix(arg, "--karmada") {
					found = append(found, arg)
				}
			}
		}
		return found
	}
	rights := func(values string) map[string][]string {
		found := map[string][]string{}
		for role, rules := range mustRender(t, values).rules(t) {
			for _, rule := range rules {
				for _, resource := range rule.Resources {
					if strings.HasSuffix(rule.APIGroups[0], "karmada.io") || strings.HasPrefix(resource, "karmada") {
						found[role] = append(found[role], resource+" "+strings.Join(rule.Verbs, ","))
					}
				}
			}
		}
		return found
	}
	manager := []string{"karmadaresourceregistries get,list,watch", "karmadaresourceregistries/status patch"}
	const everyVerb, look = "get,list,watch,create,update,patch,delete,deletecollection,options", "get,list,watch"
	for name, tc := range map[string]struct {
		values   string
		services bool
		args     []string
		rights   map[string][]string
	}{
		"off": {rights: map[string][]string{"ClusterRole/open-cluster-management:cluster-proxy:addon-manager": manager}},
		"on": {values: "karmadaAPI: {enabled: true}", services: true, args: []string{"--karmada-api=true"}, rights: map[string][]string{
			"ClusterRole/open-cluster-management:cluster-proxy:addon-manager": manager,
			"ClusterRole/open-cluster-management:cluster-proxy:proxy-api":     {"karmadaresourceregistries get,list,watch,create,update,delete"},
			"ClusterRole/cluster-proxy-user": {"clusters get,list", "clusters/proxy " + everyVerb, "clusters/stream create", "proxying/proxy " + everyVerb,
				"resourceregistries " + look},
			"ClusterRole/cluster-proxy-viewer": {"clusters get,list", "clusters/proxy " + look, "proxying/proxy " + look, "resourceregistries " + look},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rendered := mustRender(t, tc.values).byName
			for _, service := range services {
				if made := rendered[service] != nil; made != tc.services {
					t.Errorf("%s is made: %v, want %v", service, made, tc.services)
				}
			}
			if got := args(tc.values); !slices.Equal(got, tc.args) {
				t.Errorf("arguments %v, want %v", got, tc.args)
			}
			if diff := cmp.Diff(tc.rights, rights(tc.values)); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
	if got := args("karmadaAPI: {enabled: true, controlPlaneCluster: hub}"); !slices.Contains(got, "--karmada-control-plane=hub") {
		t.Errorf("arguments %v, want the control plane", got)
	}
}
