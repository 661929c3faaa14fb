package fleetview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// reviewing is a cluster that answers each review with a status, and is well if code is 200.
func reviewing(name, status string, code int) *cluster {
	return newCluster(name).failing(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case code != http.StatusOK:
			w.WriteHeader(code)
		case r.Method == http.MethodPost:
			w.Header().Set("Content-Type", fleet.JSONType)
			w.WriteHeader(http.StatusCreated)
			kind := reviewKinds[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]].kind
			if name == "liar" {
				kind = "Secret"
			}
			fmt.Fprintf(w, `{"kind": %q, "apiVersion": "v1", "status": %s}`, kind, status)
		default:
			fmt.Fprint(w, "ok")
		}
		return true
	})
}

// TestReviewsOfAView asks a view who its user is and what they may do, as kubectl auth, k9s and
// Headlamp do.
func TestReviewsOfAView(t *testing.T) {
	const access = "/apis/authorization.k8s.io/v1/"
	for name, test := range map[string]struct {
		path, body string
		clusters   []*cluster
		code       int
		want       string // the status, or a part of the refusal
		asked      []string
	}{
		"one allows": {access + "selfsubjectaccessreviews", `{"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}`,
			[]*cluster{reviewing("a", `{"allowed": false, "reason": "no rule"}`, 200), reviewing("b", `{"allowed": true, "reason": "RBAC"}`, 200)},
			201, `{"allowed": true, "reason": "allowed on b; not allowed on a"}`, []string{"a", "b"}},
		"none allows": {access + "subjectaccessreviews", "{}",
			[]*cluster{reviewing("a", `{"allowed": false, "reason": "no rule"}`, 200), reviewing("b", `{"allowed": false}`, 200)},
			201, `{"allowed": false, "reason": "not allowed on a, b; a: no rule"}`, []string{"a", "b"}},
		"one is away": {access + "namespaces/shop/localsubjectaccessreviews", "{}",
			[]*cluster{reviewing("a", `{"allowed": true}`, 200), reviewing("b", "", 503)},
			201, `{"allowed": true, "reason": "allowed on a", "evaluationError": "cluster b refused (503 Service Unavailable)"}`, []string{"a", "b"}},
		"one refuses": {access + "selfsubjectaccessreviews", "{}",
			[]*cluster{reviewing("a", `{"allowed": true}`, 200), reviewing("b", "", 403)},
			201, `{"allowed": true, "reason": "allowed on a", "evaluationError": "cluster b refused (403 Forbidden)"}`, []string{"a", "b"}},
		"one refuses rules": {access + "selfsubjectrulesreviews", "{}",
			[]*cluster{reviewing("a", `{"resourceRules": [], "nonResourceRules": []}`, 200), reviewing("b", "", 403)},
			201, `{"resourceRules": [], "nonResourceRules": [], "incomplete": true, "evaluationError": "cluster b refused (403 Forbidden)"}`, []string{"a", "b"}},
		"a namespace of one": {access + "selfsubjectaccessreviews", `{"spec": {"resourceAttributes": {"namespace": "shop@b", "name": "web@b"}}}`,
			[]*cluster{reviewing("a", `{"allowed": true}`, 200), reviewing("b", `{"allowed": false}`, 200)},
			201, `{"allowed": false, "reason": "not allowed on b"}`, []string{"b"}},
		"a namespace of none": {access + "selfsubjectaccessreviews", `{"spec": {"resourceAttributes": {"namespace": "shop@nope"}}}`,
			[]*cluster{reviewing("a", `{"allowed": true}`, 200), reviewing("b", `{"allowed": true}`, 200)}, 404, "it has: a, b", nil},
		"rules": {access + "selfsubjectrulesreviews", `{"spec": {"namespace": "shop"}}`,
			[]*cluster{reviewing("a", `{"resourceRules": [{"verbs": ["get"]}], "nonResourceRules": [{"verbs": ["*"]}], "incomplete": false}`, 200),
				reviewing("b", `{"resourceRules": [{"verbs": ["get"]}, {"verbs": ["list"]}], "nonResourceRules": [], "incomplete": true, "evaluationError": "webhook"}`, 200)},
			201, `{"resourceRules": [{"verbs": ["get"]}, {"verbs": ["list"]}], "nonResourceRules": [{"verbs": ["*"]}], "incomplete": true, "evaluationError": "b: webhook"}`, []string{"a", "b"}},
		"who am I": {"/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}",
			[]*cluster{reviewing("a", `{"userInfo": {"username": "jane"}}`, 200), reviewing("b", `{"userInfo": {"username": "jane"}}`, 200)},
			201, `{"userInfo": {"username": "jane"}}`, []string{"a", "b"}},
		"most say who I am": {"/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}",
			[]*cluster{reviewing("a", `{"userInfo": {"username": "system:admin"}}`, 200), reviewing("b", `{"userInfo": {"username": "jane"}}`, 200), reviewing("c", `{"userInfo": {"username": "jane"}}`, 200)},
			201, `{"userInfo": {"username": "jane"}}`, []string{"a", "b", "c"}},
		"one answers with another kind": {access + "selfsubjectaccessreviews", "{}",
			[]*cluster{reviewing("liar", `{"allowed": true}`, 200), reviewing("z", `{"allowed": false}`, 200)},
			201, `{"allowed": false, "reason": "not allowed on z", "evaluationError": "cluster liar did not answer (its answer is no review)"}`, []string{"liar", "z"}},
		"one answers with another status": {access + "selfsubjectaccessreviews", "{}",
			[]*cluster{reviewing("a", `{"resourceRules": []}`, 200), reviewing("b", `{"allowed": true}`, 200)},
			201, `{"allowed": true, "reason": "allowed on b", "evaluationError": "cluster a did not answer (its answer is no review)"}`, []string{"a", "b"}},
		"long reasons in lines": {access + "selfsubjectaccessreviews", "{}",
			[]*cluster{reviewing("a", `{"allowed": false, "reason": "no\nrule `+strings.Repeat("x", 1000)+`"}`, 200), reviewing("b", `{"allowed": false}`, 200)},
			201, `{"allowed": false, "reason": "not allowed on a, b; a: no rule ` + strings.Repeat("x", maxShown-8) + `..."}`, []string{"a", "b"}},
		"a token": {"/apis/authentication.k8s.io/v1/tokenreviews", `{"spec": {"token": "x"}}`,
			[]*cluster{reviewing("a", "{}", 200), reviewing("b", "{}", 200)}, 405, "make the TokenReview on one cluster", nil},
		"all are away": {access + "selfsubjectaccessreviews", "{}", []*cluster{reviewing("a", "", 503), reviewing("b", "", 503)}, 503, "", []string{"a", "b"}},
		"too large": {access + "selfsubjectaccessreviews", `{"spec": {"resourceAttributes": {"name": "` + strings.Repeat("x", maxReview) + `"}}}`,
			[]*cluster{reviewing("a", `{"allowed": true}`, 200), reviewing("b", `{"allowed": true}`, 200)}, 413, "65536", nil},
		"an answer that is too large": {access + "selfsubjectaccessreviews", "{}",
			[]*cluster{reviewing("a", `{"allowed": true, "reason": "`+strings.Repeat("x", maxReviewed)+`"}`, 200), reviewing("b", `{"allowed": false}`, 200)},
			201, `{"allowed": false, "reason": "not allowed on b", "evaluationError": "cluster a did not answer (its answer is no review)"}`, []string{"a", "b"}},
		"no reviews": {access + "selfsubjectaccessreviews", "{}", []*cluster{reviewing("a", "7", 200), reviewing("b", "[]", 200)}, 503, "no review", []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			view := testView(test.clusters...)
			view.Writes = fleet.WritesNone // a review changes nothing
			got := New(Options{}).request(t, view, http.MethodPost, test.path, test.body, "Content-Type", fleet.JSONType)
			if got.code != test.code {
				t.Fatalf("got %d %s, want %d", got.code, got.body, test.code)
			}
			if test.code == http.StatusCreated {
				var answer, want map[string]any
				if err := json.Unmarshal([]byte(test.want), &want); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal([]byte(got.body), &answer); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(any(want), answer["status"]); diff != "" {
					t.Errorf("the status (-want +got):\n%s", diff)
				}
				isOfSome := want["allowed"] == true && (want["evaluationError"] != nil || strings.Contains(want["reason"].(string), "; not allowed on "))
				if warnings := got.header.Values("Warning"); len(warnings) > 0 != isOfSome || isOfSome && !strings.Contains(warnings[0], want["reason"].(string)) {
					t.Errorf("got the Warnings %q for %s; only a yes of some clusters has one", warnings, test.want)
				}
			} else if !strings.Contains(got.body, test.want) {
				t.Errorf("got %s, want %q in it", got.body, test.want)
			}
			var asked []string
			for _, c := range test.clusters {
				for _, r := range c.asked() {
					asked = append(asked, c.name)
					if strings.Contains(r.body, "@") {
						t.Errorf("%s is asked %s, want its own names", c.name, r.body)
					}
				}
			}
			if diff := cmp.Diff(test.asked, asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReviewsInProtobuf asks a view as kubectl auth can-i does, which sends reviews in protobuf.
func TestReviewsInProtobuf(t *testing.T) {
	for name, review := range map[string]runtime.Object{
		"selfsubjectaccessreviews": &authorizationv1.SelfSubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "shop@b", Verb: "get", Resource: "pods", Name: "web@b"}}},
		"selfsubjectrulesreviews": &authorizationv1.SelfSubjectRulesReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectRulesReview"},
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "shop@b"}},
	} {
		var body bytes.Buffer
		if err := protobuf.NewSerializer(nil, nil).Encode(review, &body); err != nil {
			t.Fatal(err)
		}
		status := `{"allowed": true, "resourceRules": []}`
		a, b := reviewing("a", status, 200), reviewing("b", status, 200)
		got := New(Options{}).request(t, testView(a, b), http.MethodPost, "/apis/authorization.k8s.io/v1/"+name, body.String(), "Content-Type", request.ProtobufType)
		ofA, ofB := a.asked(), b.asked()
		if got.code != http.StatusCreated || len(ofA) != 0 || len(ofB) != 1 {
			t.Fatalf("%s: got %d %s; a is asked %v, b is asked %v; want b alone", name, got.code, got.body, ofA, ofB)
		}
		if sent := ofB[0].body; strings.Contains(sent, "@") || !strings.Contains(sent, `"namespace":"shop"`) {
			t.Errorf("%s: b is asked %q, want its own names", name, sent)
		}
	}
}

// TestHealthOfAView asks how a view is, as Headlamp and Lens do.
func TestHealthOfAView(t *testing.T) {
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		for _, test := range []struct{ a, b, want int }{{200, 200, 200}, {503, 200, 200}, {503, 503, 503}} {
			got := New(Options{}).request(t, testView(reviewing("a", "", test.a), reviewing("b", "", test.b)), http.MethodGet, path, "")
			if got.code != test.want || test.want == http.StatusOK && got.body != "ok" {
				t.Errorf("%s of clusters that answer %d and %d: %d %q, want %d", path, test.a, test.b, got.code, got.body, test.want)
			}
		}
	}
}

// TestBodiesThatNoClusterReads has bodies that say no cluster because they say nothing: the code is
// a kube-apiserver's.
func TestBodiesThatNoClusterReads(t *testing.T) {
	for name, test := range map[string]struct {
		method, url, contentType, body string
		want                           int
	}{
		"broken JSON":       {http.MethodPost, shop, fleet.JSONType, `{"kind": "Pod",`, 400},
		"text":              {http.MethodPost, shop, "text/plain", "hello", 415},
		"a form":            {http.MethodPost, shop, "application/x-www-form-urlencoded", "a=b", 415},
		"a broken patch":    {http.MethodPatch, shop + "/web", "application/merge-patch+json", "{", 400},
		"a patch of a kind": {http.MethodPatch, shop + "/web", "application/diff", "{}", 415},
		"no cluster":        {http.MethodPost, shop, fleet.JSONType, `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}}`, 405},
	} {
		got := New(Options{}).request(t, testView(newCluster("a"), newCluster("b")), test.method, test.url, test.body, "Content-Type", test.contentType)
		if got.code != test.want {
			t.Errorf("%s: got %d %s, want %d", name, got.code, got.body, test.want)
		}
	}
}
