package hostile

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const (
	viewsPath = "/apis/clusterproxy.open-cluster-management.io/v1alpha1/fleetviews/"
	// allView is the FleetView that the chart makes, of all clusters.
	allView = "all"
	mapPath = "/api/v1/namespaces/default/configmaps"
)

// viewEndpoints are the ways for the hub's users to a fleet view.
func (s *Suite) viewEndpoints(t *testing.T, view string) []endpoint {
	t.Helper()
	var all []endpoint
	for _, d := range s.endpoints(t, s.attacker()) {
		switch d.name {
		case "direct":
			d.prefix = "/@" + view
		case "aggregated":
			d.prefix = viewsPath + view + "/proxy"
		default:
			continue
		}
		d.name = "view, " + d.name
		all = append(all, d)
	}
	return all
}

// makeMap makes a ConfigMap on a managed cluster, for as long as the test runs.
func (s *Suite) makeMap(t *testing.T, cluster, name string) {
	t.Helper()
	maps := s.managed[cluster].CoreV1().ConfigMaps("default")
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"hostile": "view"}}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = maps.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// testViewSecrecy has a user who may reach the attacker's cluster only learn about the
// victim's through a view that has both. They hear the same of the victim as of
// a cluster that does not exist, while the victim is there and while it is away.
func (s *Suite) testViewSecrecy(t *testing.T) {
	const user, mark = "hostile-view", "hostile-view-secrecy"
	a, v := s.attacker(), s.victim()
	s.makeMap(t, a, "hostile-own")
	s.makeMap(t, v, "hostile-secret")
	s.makeMap(t, v, "hostile-own")
	token := s.hubUser(t, user, append(suite.MayUseViews(), mayReach(a, "*"))...)
	for cluster := range s.managed { // only what the hub says keeps them out
		s.mayDoAllOn(t, cluster, user)
	}
	attack := func(t *testing.T) {
		for _, d := range s.viewEndpoints(t, allView) {
			t.Run(d.name, func(t *testing.T) {
				code, _, body := d.send(t, d.request(http.MethodGet, mapPath+"?labelSelector=hostile%3Dview", token, "", "Audit-ID: "+mark))
				if code != http.StatusOK || strings.Count(body, `"name":"hostile-own"`) != 1 {
					t.Fatalf("their own cluster's objects: %d %.500s, want one", code, body)
				}
				s.askAboutNothing(t, d, token, mark)
				s.askAbout(t, d, token, mark)
			})
		}
	}
	t.Run("while the victim is connected", attack)
	if err := s.Lab.PausePods(v); err != nil {
		t.Fatal(err)
	}
	resume := func() { _ = s.Lab.ResumePods(v) }
	defer resume()
	s.reach(t, v, false)
	t.Run("while the victim is away", attack)
	resume()
	s.reach(t, v, true)
	s.neverSaw(t, v, mark)
	s.saw(t, a, mark)
}

// askAboutNothing sends requests that name no cluster. No answer speaks of the victim.
func (s *Suite) askAboutNothing(t *testing.T, d endpoint, token, mark string) {
	t.Helper()
	for _, path := range []string{
		mapPath, mapPath + "?limit=1", mapPath + "?watch=1&timeoutSeconds=1", mapPath + "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		mapPath + "/hostile-own", "/api/v1/nodes", "/api/v1/namespaces/default/pods", "/version", "/api", "/apis", "/openapi/v3", "/apis/none.example.org/v1/nones",
	} {
		for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"} {
			code, header, body := d.send(t, d.request(http.MethodGet, path, token, "", "Accept: "+accept, "Audit-ID: "+mark))
			said := fmt.Sprint(header, body)
			if code >= 500 || strings.Contains(said, s.victim()) || strings.Contains(said, "hostile-secret") || len(header["Warning"]) > 0 {
				t.Errorf("%s: %d %.500s, want nothing of %s and no warning", path, code, said, s.victim())
			}
		}
	}
}

// versions are what differs between two answers to one request.
var versions = regexp.MustCompile(`"(resourceVersion|continue)":"[^"]*"`)

// asking is a request, in which NAME stands for what it is about.
type asking struct{ method, path, body string }

// askAbout sends requests that name the victim, or an object of it, and the same of what
// there is not: the answers are the same but for the name.
func (s *Suite) askAbout(t *testing.T, d endpoint, token, mark string) {
	t.Helper()
	object := func(meta string) string { return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + meta + `}}` }
	s.askAlike(t, d, token, mark, s.victim(), "nowhere", []asking{
		{"GET", mapPath + "/hostile-secret@NAME", ""}, {"GET", mapPath + "/hostile-own@NAME", ""}, {"GET", mapPath + "/hostile-own%40NAME", ""},
		{"GET", mapPath + "?fieldSelector=metadata.cluster%3DNAME", ""}, {"GET", mapPath + "?fieldSelector=metadata.name%3Dhostile-own%40NAME", ""},
		{"GET", mapPath + "?fieldSelector=metadata.cluster%21%3DNAME&labelSelector=hostile%3Dview", ""},
		{"GET", mapPath + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.cluster%3DNAME", ""},
		{"GET", "/api/v1/namespaces/default/pods/web@NAME/log", ""}, {"GET", "/api/v1/namespaces/default/pods/web@NAME/exec?command=id", ""},
		{"POST", mapPath, object(`"name":"hostile-new@NAME"`)},
		{"POST", mapPath, object(`"name":"hostile-new","annotations":{"` + fleet.AnnotationCluster + `":"NAME"}`)},
		{"PUT", mapPath + "/hostile-own@NAME", object(`"name":"hostile-own@NAME"`)},
		{"DELETE", mapPath + "/hostile-own@NAME", ""}, {"DELETE", mapPath + "?fieldSelector=metadata.cluster%3DNAME", ""},
	})
	s.askAlike(t, d, token, mark, "hostile-secret", "hostile-nothing", []asking{
		{"GET", mapPath + "/NAME", ""}, {"PUT", mapPath + "/NAME", object(`"name":"NAME"`)}, {"DELETE", mapPath + "/NAME", ""}, {"GET", mapPath + "?fieldSelector=metadata.name%3DNAME", ""},
	})
}

func (s *Suite) askAlike(t *testing.T, d endpoint, token, mark, secret, nothing string, requests []asking) {
	t.Helper()
	for _, r := range requests {
		var answers [2]string
		for i, name := range []string{secret, nothing} {
			code, header, body := d.send(t, d.request(r.method, strings.ReplaceAll(r.path, "NAME", name), token, strings.ReplaceAll(r.body, "NAME", name), "Audit-ID: "+mark))
			answers[i] = strings.ReplaceAll(versions.ReplaceAllString(fmt.Sprint(code, header["Warning"], body), ""), name, "NAME")
			if code >= 500 {
				t.Errorf("%s %s: %d %.300s, want less than 500", r.method, r.path, code, body)
			}
		}
		if answers[0] != answers[1] {
			t.Errorf("%s %s: of %s\n%.500s\nand of %s, which there is not,\n%.500s", r.method, r.path, secret, answers[0], nothing, answers[1])
		}
	}
}
