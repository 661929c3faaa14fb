package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

const (
	karmadaClustersPath = "/apis/cluster.karmada.io/v1alpha1/clusters/"
	karmadaProxyingPath = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy"
	registriesPath      = "/apis/search.karmada.io/v1alpha1/resourceregistries"
)

// karmadaEndpoints are the ways for the hub's users to a path of Karmada's API.
func (s *Suite) karmadaEndpoints(t *testing.T, path string) []endpoint {
	t.Helper()
	var all []endpoint
	for _, d := range s.endpoints(t, s.attacker()) {
		if d.name == "host" {
			continue
		}
		d.name, d.prefix = "Karmada, "+d.name, path
		all = append(all, d)
	}
	return all
}

// karmadaRule is a right in one of Karmada's groups.
func karmadaRule(group, resource string, names []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
}

// testKarmada has a user who may reach the attacker's cluster only, by Karmada's API: nothing
// is heard of the victim's there, no cluster's token is good, rights in the addon's group are
// none, and neither are those to what registries are stored as.
func (s *Suite) testKarmada(t *testing.T) {
	const user, ours, mark = "hostile-karmada", "hostile-karmada-ours", "hostile-by-karmadas-urls"
	a, v := s.attacker(), s.victim()
	registry := `{"apiVersion":"search.karmada.io/v1alpha1","kind":"ResourceRegistry","metadata":{"name":"hostile"},"spec":{"targetCluster":{},` +
		`"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap"},{"apiVersion":"v1","kind":"Pod"}]}}`
	registries := s.hub.RESTClient()
	if err := registries.Post().AbsPath(registriesPath).SetHeader("Content-Type", "application/json").Body([]byte(registry)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registries.Delete().AbsPath(registriesPath, "hostile").Do(context.Background()).Error() })
	s.makeMap(t, a, "hostile-own", nil)
	s.makeMap(t, v, "hostile-secret", nil)
	s.makeMap(t, v, "hostile-own", nil)
	proxying := karmadaRule("search.karmada.io", "proxying/proxy", []string{"karmada"}, "*")
	token := s.hubUser(t, user, proxying, karmadaRule("cluster.karmada.io", "clusters/proxy", []string{a}, "*"), karmadaRule("cluster.karmada.io", "clusters", nil, "get", "list"))
	s.mayEverywhere(t, user)
	for _, d := range s.karmadaEndpoints(t, karmadaProxyingPath) {
		t.Run(d.name, func(t *testing.T) {
			s.eventuallyListed(t, d, token)
			s.askAboutNothing(t, d, token, mark)
			s.askAbout(t, d, token, mark)
		})
	}
	for _, d := range s.karmadaEndpoints(t, karmadaClustersPath) {
		for path, want := range map[string]int{
			a + "/proxy/version": 200, v + "/proxy/version": 403, "nowhere/proxy/version": 403, "*/proxy/api/v1/namespaces": 403, v: 404, "nowhere": 404,
			a + "/proxy/api/v1/namespaces/default/pods/web/exec?command=id": 403,
		} {
			if code, _, body := d.send(t, d.request(http.MethodGet, path, token, "", "Audit-ID: "+mark)); code != want {
				t.Errorf("%s: %s: %d %.300s, want %d", d.name, path, code, body, want)
			}
		}
	}
	s.testTokensOfClusters(t, s.karmadaEndpoints(t, karmadaProxyingPath), mark+"-token")
	// Rights in the addon's group are for the addon's URLs.
	other := s.hubUser(t, ours, mayUseViews(mayReach(a, "*"), mayReach(v, "*"), karmadaRule("proxy.open-cluster-management.io", "karmadaresourceregistries", nil, "*"))...)
	s.mayEverywhere(t, ours)
	for _, d := range s.karmadaEndpoints(t, "") {
		for _, path := range []string{karmadaProxyingPath + mapPath, karmadaClustersPath + a + "/proxy" + mapPath, registriesPath, registriesPath + "/hostile", "/apis/cluster.karmada.io/v1alpha1/clusters"} {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				if code, _, body := d.send(t, d.request(method, path, other, "", "Audit-ID: "+mark)); code != http.StatusForbidden && code != http.StatusMethodNotAllowed {
					t.Errorf("%s: %s %s: %d %.300s, want it refused", d.name, method, path, code, body)
				}
			}
		}
	}
	s.neverSaw(t, v, mark)
	s.saw(t, a, mark)
}

// eventuallyListed waits until the proxy API knows the registry.
func (s *Suite) eventuallyListed(t *testing.T, d endpoint, token string) {
	t.Helper()
	eventually(t, "the registry at "+d.name, func() error {
		code, _, body := d.send(t, d.request(http.MethodGet, mapPath+"?labelSelector=hostile%3Dview", token, ""))
		if code != http.StatusOK || !strings.Contains(body, "resource.karmada.io/cached-from-cluster") {
			return fmt.Errorf("answered %d %.300s", code, body)
		}
		return nil
	})
}
