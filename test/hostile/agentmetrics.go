package hostile

import (
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ofAgents begins metrics that no other process has.
const ofAgents = "cluster_proxy_agent_"

// mayScrape is a right to the metrics of a cluster's agents.
func mayScrape(cluster, verb string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"clusterproxy.open-cluster-management.io"}, Resources: []string{"clusters/metrics"}, ResourceNames: []string{cluster}, Verbs: []string{verb}}
}

// testAgentMetrics asks for the metrics of agents without the right to them, with another
// right, as nobody, and with headers that only the proxy API may send.
func (s *Suite) testAgentMetrics(t *testing.T) {
	a, v := s.attacker(), s.victim()
	scraper := s.hubUser(t, "hostile-scraper", mayScrape(a, "get"))
	tokens := map[string]string{
		"user of the cluster": s.hubUser(t, "hostile-not-scraper", mayReach(a, "*"), mayStream(a)),
		"other verb":          s.hubUser(t, "hostile-list-scraper", mayScrape(a, "list"), mayReach(a, "*")),
		"unknown":             "nobodys", "none": "",
	}
	made, err := s.managed[a].CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tokens["of the cluster"] = made.Status.Token
	endpoints := s.endpoints(t, a)
	ask := func(d endpoint, method, target, token string, lines ...string) (int, string) {
		t.Helper()
		code, _, body := d.send(t, requestText(method, target, d.host, token, "", lines...))
		return code, body
	}
	metrics := clustersPath + a + "/metrics"
	// The host endpoint has no such path of its own: there it is the cluster's.
	for _, d := range []endpoint{endpoints[0], endpoints[2]} {
		if code, body := ask(d, http.MethodGet, metrics, scraper); code != http.StatusOK || !strings.Contains(body, ofAgents) || !strings.Contains(body, `pod="`) {
			t.Fatalf("%s: with the right: %d %.300s, want metrics of an agent", d.name, code, body)
		}
		for name, token := range tokens {
			if code, body := ask(d, http.MethodGet, metrics, token); code != http.StatusUnauthorized && code != http.StatusForbidden {
				t.Errorf("%s: as %s: %d %.300s, want 401 or 403", d.name, name, code, body)
			}
		}
		for _, target := range []string{
			clustersPath + v + "/metrics", clustersPath + a + "/../" + v + "/metrics", clustersPath + a + "%2f..%2f" + v + "/metrics", metrics + "/../../" + v + "/metrics", metrics + "/x", metrics + "/api/v1/secrets",
			metrics + "/api/v1/namespaces/default/services/web/proxy-service/", clustersPath + a + "/proxy/metrics", clustersPath + a + "/proxy/version",
		} {
			if code, body := ask(d, http.MethodGet, target, scraper); code < 300 || code >= 500 {
				t.Errorf("%s: %s: %d %.300s, want it refused", d.name, target, code, body)
			}
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, "BREW"} {
			if code, body := ask(d, method, metrics, scraper); code < 400 || code >= 500 {
				t.Errorf("%s: %s: %d %.300s, want it refused", d.name, method, code, body)
			}
		}
		for _, lines := range [][]string{socket, spdy} {
			if code, body := ask(d, http.MethodGet, metrics, scraper, lines...); code < 400 || code >= 500 {
				t.Errorf("%s: %s: %d %.300s, want it refused", d.name, lines, code, body)
			}
		}
	}
	s.pretendAgentMetrics(t, endpoints, tokens["user of the cluster"])
}

// pretendAgentMetrics has a user of the cluster's API write by themselves what the proxy API tells
// an agent, in every spelling.
func (s *Suite) pretendAgentMetrics(t *testing.T, endpoints []endpoint, token string) {
	t.Helper()
	codes := map[int]int{}
	for _, d := range endpoints {
		for name, spell := range spellings {
			for _, path := range []string{"/metrics", "/version"} {
				code, _, body := d.send(t, d.request(http.MethodGet, path, token, "", spell("Cluster-Proxy-Agent", "metrics")...))
				if strings.Contains(body, ofAgents) || code >= 500 && code != http.StatusNotImplemented {
					t.Errorf("%s: %s with the header %s: %d %.300s, want the cluster's own answer or a refusal", d.name, path, name, code, body)
				}
				codes[code]++
			}
		}
	}
	if codes[http.StatusOK] == 0 || codes[http.StatusBadRequest] == 0 {
		t.Errorf("answers %v: too few kinds, something is wrong with the test", codes)
	}
}
