package hostile

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// testPolicies has a user who may do everything by the rights of hub and cluster, and whom an AccessPolicy restricts to reading,
// get around it by each endpoint, by a view, by an upgrade, by CONNECT, and by impersonation. Package proxyapi's TestPolicyBypasses has
// the spellings.
func (s *Suite) testPolicies(t *testing.T) {
	const user, other, mark = "hostile-policed", "hostile-impersonated", "hostile-policies-"
	v := s.attacker() // which has the pod
	rights := append(suite.MayUseViews(), mayReach(v, "*"), mayStream(v))
	token := s.hubUser(t, user, append(rights, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate"}, ResourceNames: []string{other}})...)
	s.hubUser(t, other, rights...)
	for _, account := range []string{user, other} {
		s.mayDoAllOn(t, v, account)
	}
	pod := "/api/v1/namespaces/default/pods/" + s.webPod(t)
	as := "Impersonate-User: system:serviceaccount:default:" + other
	direct := s.endpoints(t, v)[0]
	code, _, body := direct.send(t, direct.request(http.MethodDelete, "/api/v1/namespaces/default/configmaps/nothing", token, "", as))
	if code != http.StatusNotFound {
		t.Fatalf("without a policy the user impersonates another: %d %.300s, want the cluster's 404", code, body)
	}
	s.MakeOnHub(t, suite.AccessPolicies, "AccessPolicy", user, map[string]any{
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "default", "name": user}},
		"rules":    []any{map[string]any{"name": "read", "expression": "request.verb in ['get', 'list', 'watch'] && request.resource != 'secrets'"}},
	})
	suite.Eventually(t, "the policy to be in force", func() error {
		if code, _, body := direct.send(t, direct.request(http.MethodGet, "/api/v1/secrets", token, "")); code != http.StatusForbidden || !strings.Contains(body, "AccessPolicy") {
			return fmt.Errorf("answered %d %.300s", code, body)
		}
		return nil
	})
	asked := 0
	for _, d := range append(s.endpoints(t, v), s.viewEndpoints(t, allView)...) {
		at := ""
		if strings.HasPrefix(d.name, "view") {
			at = "@" + v
		} else if code, _, body := d.send(t, d.request(http.MethodGet, "/version", token, "")); code != http.StatusOK {
			t.Errorf("%s: what the policy allows: %d %.300s, want 200", d.name, code, body)
		}
		for _, a := range []struct {
			method, path string
			lines        []string
		}{
			{http.MethodGet, "/api/v1/namespaces/default/secrets/x" + at, nil}, {http.MethodGet, "/api/v1/namespaces/default/%73ecrets/x" + at, nil}, {http.MethodDelete, pod + at, nil}, {http.MethodDelete, pod + at + "?dryRun=All", nil},
			{http.MethodGet, pod + at + "/exec?command=id&stdout=1", socket}, {http.MethodPost, pod + at + "/exec?command=id&stdout=1", spdy}, {http.MethodDelete, pod + at, []string{as}},
		} {
			if len(a.lines) == 1 && strings.HasSuffix(d.name, "aggregated") {
				continue // the hub's kube-apiserver impersonates, and tells of the other user alone
			}
			asked++
			code, _, body := d.send(t, d.request(a.method, a.path, token, "", append(a.lines, fmt.Sprint("Audit-ID: ", mark, asked))...))
			if code != http.StatusForbidden {
				t.Errorf("%s: %s %s %q: %d %.300s, want 403", d.name, a.method, a.path, a.lines, code, body)
			}
		}
	}
	if code, _, body := direct.send(t, requestText(http.MethodConnect, v+":443", v+":443", "", "", "Proxy-Authorization: Bearer "+token)); code != http.StatusForbidden {
		t.Errorf("CONNECT: %d %.300s, want 403", code, body)
	}
	s.neverSaw(t, v, mark)
}
