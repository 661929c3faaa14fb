package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview"
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

// mayUseViews are the rights to use views, which are rights to no cluster.
func mayUseViews(rules ...rbacv1.PolicyRule) []rbacv1.PolicyRule {
	return append(rules,
		rbacv1.PolicyRule{APIGroups: []string{"proxy.open-cluster-management.io"}, Resources: []string{"fleetviews"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{"clusterproxy.open-cluster-management.io"}, Resources: []string{"fleetviews/proxy"}, Verbs: []string{"*"}})
}

// mayEverywhere lets a user of hubUser do everything on all managed clusters, so that only
// what the hub says keeps them out.
func (s *Suite) mayEverywhere(t *testing.T, name string) {
	t.Helper()
	for cluster, cs := range s.managed {
		bindings := cs.RbacV1().ClusterRoleBindings()
		_, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "cluster:hub:system:serviceaccount:default:" + name}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("giving %s rights on %s: %v", name, cluster, err)
		}
		t.Cleanup(func() { _ = bindings.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
}

// makeMap makes a ConfigMap on a managed cluster, for as long as the test runs.
func (s *Suite) makeMap(t *testing.T, cluster, name string, annotations map[string]string) {
	t.Helper()
	maps := s.managed[cluster].CoreV1().ConfigMaps("default")
	meta := metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"hostile": "view"}}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = maps.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// testViewSecrecy has a user who may reach the attacker's cluster only learn about the
// victim's through a view that has both. What they hear of the victim is what they hear of
// a cluster that does not exist, while the victim is there and while it is away.
func (s *Suite) testViewSecrecy(t *testing.T) {
	const user, mark = "hostile-view", "hostile-view-secrecy"
	a, v := s.attacker(), s.victim()
	s.makeMap(t, a, "hostile-own", nil)
	s.makeMap(t, v, "hostile-secret", nil)
	s.makeMap(t, v, "hostile-own", nil)
	token := s.hubUser(t, user, mayUseViews(mayReach(a, "*"))...)
	s.mayEverywhere(t, user)
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
	if s.CanPause {
		if err := s.Lab.PausePods(v); err != nil {
			t.Fatal(err)
		}
		resume := func() { _ = s.Lab.ResumePods(v) }
		defer resume()
		s.reach(t, v, false)
		t.Run("while the victim is away", attack)
		resume()
		s.reach(t, v, true)
	}
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
		{"POST", mapPath, object(`"name":"hostile-new","annotations":{"` + fleetview.AnnotationCluster + `":"NAME"}`)},
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

// testViewExec has a user who may only read on the hub, and everything on the clusters, try
// to get into a container through a view.
func (s *Suite) testViewExec(t *testing.T) {
	const user, mark = "hostile-view-exec", "hostile-view-exec-"
	a := s.attacker()
	token := s.hubUser(t, user, mayUseViews(mayReach(a, "get", "list", "watch"))...)
	s.mayEverywhere(t, user)
	const pods = "/api/v1/namespaces/default/pods/"
	asked := 0
	for _, d := range s.viewEndpoints(t, allView) {
		if code, _, body := d.send(t, d.request(http.MethodGet, pods, token, "", "Audit-ID: "+mark+"good")); code != http.StatusOK {
			t.Fatalf("%s: reading: %d %.300s, want 200", d.name, code, body)
		}
		for _, test := range []struct {
			path  string
			lines []string
		}{
			{"/exec?command=id&stdout=1", socket}, {"/exec?command=id&stdout=1", spdy}, {"/exec?command=id&stdout=1", nil}, {"/%65xec?command=id&stdout=1", socket},
			{"//exec?command=id&stdout=1", socket}, {"/exec/?command=id&stdout=1", socket}, {"/exec?command=id&stdout=1&watch=1", socket},
			{"/exec?command=id&stdout=1", []string{"connection: keep-alive , uPGRADE", "UPGRADE: WebSocket"}},
			{"/attach?stdout=1", socket}, {"/portforward?ports=8080", socket}, {"/proxy/", socket}, {"/proxy/", nil}, {"?command=id", socket},
		} {
			for _, pod := range []string{"web@" + a, "web%40" + a, "web"} {
				asked++
				lines := append(slices.Clone(test.lines), fmt.Sprint("Audit-ID: ", mark, asked))
				code, _, body := d.send(t, d.request(http.MethodGet, pods+pod+test.path, token, "", lines...))
				if code != http.StatusForbidden && code != http.StatusNotFound && code != http.StatusBadRequest {
					t.Errorf("%s: %s%s with %q: %d %.300s, want it refused", d.name, pod, test.path, test.lines, code, body)
				}
			}
		}
	}
	for id := range asked {
		if s.count(t, a, fmt.Sprintf("%q", fmt.Sprint(mark, id+1))) > 0 {
			t.Errorf("request %d has reached the cluster", id+1)
		}
	}
	s.saw(t, a, mark+"good")
}

// testViewTokens sends to views what is good on one cluster, or nowhere. No cluster gets to
// see it.
func (s *Suite) testViewTokens(t *testing.T) {
	s.testTokensOfClusters(t, s.viewEndpoints(t, allView), "hostile-view-token")
}

func (s *Suite) testTokensOfClusters(t *testing.T, endpoints []endpoint, mark string) {
	t.Helper()
	tokens := map[string]string{"unknown": "nobodys", "none": ""}
	for cluster, cs := range s.managed {
		made, err := cs.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		tokens["of "+cluster] = made.Status.Token
	}
	for _, d := range endpoints {
		for name, token := range tokens {
			for _, path := range []string{"/version", "/api", mapPath, mapPath + "/a@" + s.attacker(), mapPath + "?watch=1"} {
				code, _, body := d.send(t, d.request(http.MethodGet, path, token, "", "Audit-ID: "+mark))
				// Without a credential the hub's own kube-apiserver knows an anonymous user.
				if code != http.StatusUnauthorized && (code != http.StatusForbidden || name != "none") {
					t.Errorf("%s: %s with the token %s: %d %.300s, want 401", d.name, path, name, code, body)
				}
			}
		}
	}
	for cluster := range s.managed {
		s.neverSaw(t, cluster, mark)
	}
}

// testViewPaths writes the sign of a view in places where it does not belong. The user may
// reach the attacker's cluster, by itself and in views, and must never get to the victim's.
func (s *Suite) testViewPaths(t *testing.T) {
	const user, mark = "hostile-view-paths", "hostile-view-paths-"
	a, v := s.attacker(), s.victim()
	token := s.hubUser(t, user, mayUseViews(mayReach(a, "*"))...)
	s.mayEverywhere(t, user)
	direct, aggregated := s.viewEndpoints(t, allView)[0], s.viewEndpoints(t, allView)[1]
	asked := 0
	try := func(d endpoint, target string) int {
		t.Helper()
		asked++
		code, _, body := d.send(t, requestText(http.MethodGet, target, d.host, token, "", fmt.Sprint("Audit-ID: ", mark, asked)))
		if code >= 500 || code == 0 {
			t.Errorf("%s: %s: %d %.300s, want less than 500", d.name, target, code, body)
		}
		return code
	}
	for _, d := range []endpoint{direct, aggregated} {
		if code := try(d, d.prefix+"/version"); code != http.StatusOK {
			t.Fatalf("%s: the view answers %d", d.name, code)
		}
	}
	// %40 is another way to write the same view.
	if code := try(direct, "/%40all/version"); code != http.StatusOK && code < 400 {
		t.Errorf("/%%40all/version: %d, want the view or a refusal", code)
	}
	names := []string{
		"x@" + v, "x%40" + v, "@" + v, "%40" + v, "x@@" + v, "x@" + a + "@" + v, "x@" + v + "@" + a, "x@" + strings.ToUpper(v), "x@" + v + "%00", "x@" + v + "%20", "x@" + v + "%2f", "x@" + v + ".",
		"x@" + a + "%2f..%2f" + v, "x@..%2f" + v, "x@" + v + ";", "x@" + url.PathEscape("../"+v), "@", "x@", "@@",
	}
	for _, d := range []endpoint{direct, aggregated} {
		for _, name := range names {
			for _, rest := range []string{"", "/x"} {
				if code := try(d, d.prefix+mapPath+"/"+name+rest); code < 400 {
					t.Errorf("%s: object %s%s: %d, want it refused", d.name, name, rest, code)
				}
			}
		}
		for _, path := range []string{"/@" + v + "/version", "/" + v + "/version", "/@all/version", "/api@" + v + "/v1/pods", "/api/v1@" + v + "/pods", "/api/v1/pods@" + v, "/../" + v + "/version",
			"/%2e%2e/" + v + "/version", "/..%2f" + v + "/version", "/api/../../" + v + "/version", "/@all/../../" + v + "/version"} {
			if code := try(d, d.prefix+path); code < 400 && code != http.StatusMovedPermanently {
				t.Errorf("%s: path %s: %d, want it refused", d.name, path, code)
			}
		}
	}
	tryInPaths(direct, v, a, try)
	tryInPaths(aggregated, v, a, try)
	for _, target := range []string{
		"/@", "/@/", "/@/version", "/@@/version", "/@@all/version", "//@all/version", "/@all@" + a + "/version", "/@all@" + v + "/version", "/@all%40" + v + "/version", "/%40%40all/version", "/%2540all/version", "/all@/version",
		"/all@" + v + "/version", "/" + a + "@" + v + "/version", "/" + a + "%40" + v + "/version", "/@" + v + "/version", "/@" + a + "/version", "/@ALL/version", "/@all./version", "/@all%00/version", "/@all%20/version",
		"/@all%2f..%2f" + v + "/version", "/@all;/version", "/@all:443/version", "/@..%2f" + v + "/version", "/@../" + v + "/version", "/@./version", "/ @all/version",
		viewsPath + "@all/proxy/version", viewsPath + "all@" + v + "/proxy/version", viewsPath + "all/proxy@" + v + "/version", viewsPath + "all/../../clusters/" + v + "/proxy/version", viewsPath + v + "/proxy/version",
		clustersPath + "@all/proxy/version", clustersPath + a + "@" + v + "/proxy/version", clustersPath + "%40all/proxy/version",
	} {
		for _, d := range []endpoint{direct, aggregated} {
			if code := try(d, target); code < 400 && code != http.StatusMovedPermanently {
				t.Errorf("%s: %s: %d, want it refused", d.name, target, code)
			}
		}
	}
	s.neverSaw(t, v, mark)
	s.saw(t, a, mark)
}

// tryInPaths writes the victim's name behind an @ where no name of an object is. The
// attacker's own cluster may have an empty answer to some of these.
func tryInPaths(d endpoint, v, a string, try func(d endpoint, target string) int) {
	for _, path := range []string{
		"/api/v1/namespaces/default@" + v + "/configmaps", "/api/v1/namespaces/default%40" + v + "/configmaps/x", "/api/v1/namespaces/default@" + v, "/api/v1/namespaces/@" + v + "/pods",
		"/apis/apps@" + v + "/v1/deployments", "/apis/apps/v1@" + v + "/deployments", "/apis/apps/v1/deployments@" + v, "/openapi/v3/api@" + v, "/version@" + v, "/version/@" + v,
		"/api/v1/namespaces/default/pods/web/log@" + v, "/api/v1/namespaces/default/pods/web@" + a + "/log@" + v, "/api/v1/namespaces/default/services/web@" + v + ":80/proxy/", "/api/v1/namespaces/default/services/https:web@" + v + ":80/proxy/",
		mapPath + "?fieldSelector=metadata.cluster%3D%40" + v, mapPath + "?fieldSelector=metadata.cluster%40" + v + "%3Dx", mapPath + "?fieldSelector=metadata.namespace%3Ddefault%40" + v,
		mapPath + "?labelSelector=a%40" + v, mapPath + "?continue=%40" + v, mapPath + "?resourceVersion=1%40" + v, mapPath + "?cluster=%40" + v, mapPath + "#@" + v,
	} {
		try(d, d.prefix+path)
	}
}

// testViewClaims has the attacker's cluster say that its object is the victim's, by the
// annotation that a view sets. A user who may reach both sees whose it is.
func (s *Suite) testViewClaims(t *testing.T) {
	const user = "hostile-view-claims"
	s.makeMap(t, s.attacker(), "hostile-claim", map[string]string{fleetview.AnnotationCluster: s.victim(), "Cluster": s.victim()})
	token := s.hubUser(t, user, mayUseViews(mayReach(s.attacker(), "*"), mayReach(s.victim(), "*"))...)
	s.mayEverywhere(t, user)
	for _, d := range s.viewEndpoints(t, allView) {
		for _, query := range []string{"", "?limit=500", "?fieldSelector=metadata.name%3Dhostile-claim", "?watch=1&timeoutSeconds=1&labelSelector=hostile%3Dview", "/hostile-claim"} {
			for _, as := range []string{"", ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", ";as=Table;v=v1;g=meta.k8s.io"} {
				if query == "/hostile-claim" {
					as = strings.ReplaceAll(as, "MetadataList", "Metadata")
				}
				code, _, body := d.send(t, d.request(http.MethodGet, mapPath+query, token, "", "Accept: application/json"+as+",application/json"))
				if code != http.StatusOK {
					t.Errorf("%s: %q as %q: %d %.300s, want 200", d.name, query, as, code, body)
					continue
				}
				claims := 0
				for decoder := json.NewDecoder(strings.NewReader(body)); decoder.More(); {
					var answer shown
					if err := decoder.Decode(&answer); err != nil {
						t.Fatalf("%s: %q as %q: %v", d.name, query, as, err)
					}
					for _, meta := range answer.objects() {
						if meta.Name == "hostile-claim" {
							claims++
							if got := meta.Annotations[fleetview.AnnotationCluster]; got != s.attacker() {
								t.Errorf("%s: %q as %q: it is said to be of %q, want %q", d.name, query, as, got, s.attacker())
							}
						}
					}
				}
				if claims == 0 || strings.Contains(body, `"cells":["`+s.victim()+`","hostile-claim"`) {
					t.Errorf("%s: %q as %q: %d objects, want it in the answer, as the attacker's:\n%.1000s", d.name, query, as, claims, body)
				}
			}
		}
	}
}

// shown is an object, a list, a Table, or an event about one of these.
type shown struct {
	Metadata metav1.ObjectMeta
	Items    []shown
	Rows     []struct{ Object shown }
	Object   *shown
}

// objects are the metadata of all objects in an answer.
func (a shown) objects() []metav1.ObjectMeta {
	all := []metav1.ObjectMeta{a.Metadata}
	for _, item := range a.Items {
		all = append(all, item.objects()...)
	}
	for _, row := range a.Rows {
		all = append(all, row.Object.objects()...)
	}
	if a.Object != nil {
		all = append(all, a.Object.objects()...)
	}
	return all
}
