package apihandler

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
)

func (f *fixture) fleetIndex(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: f.tls(t, f.hubCA, pki.Leaf{CommonName: string(identity.RoleFleetIndex), Client: true}), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// rows answers as a stream.
var rows = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	if err := http.NewResponseController(w).Flush(); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = io.WriteString(w, "rows")
})

func TestFleetIndexGetsRowsAndReviewsOnly(t *testing.T) {
	f := start(t, func(http.ResponseWriter, *http.Request) { t.Error("a request got through") }, Access{Index: rows})
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, "/index", http.StatusOK},
		{http.MethodGet, "/api/v1/secrets", http.StatusForbidden},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", http.StatusForbidden},
		{http.MethodGet, "/reviews", http.StatusForbidden},
		{http.MethodPost, "/index/", http.StatusForbidden},
		{http.MethodPost, "/reviews", http.StatusBadRequest}, // of nobody
	} {
		request, err := http.NewRequest(c.method, f.url+c.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.fleetIndex(t).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s %s: got %d, want %d", c.method, c.path, resp.StatusCode, c.want)
		}
	}
	// An agent without a fleet index, and the proxy API, which is no fleet index.
	plain := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	resp, err := plain.fleetIndex(t).Post(plain.url+"/index", "", nil)
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	resp, err = plain.proxyAPI(t).Post(plain.url+"/index", "", nil)
	if err != nil || resp.StatusCode != http.StatusTeapot {
		t.Fatal("the proxy API's request went elsewhere than to the kube-apiserver:", resp, err)
	}
	resp.Body.Close()
}

// review asks a review as a user of the hub.
func (f *fixture) review(t *testing.T, body string, headers map[string]string) (int, []feed.Decision) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, f.url+"/reviews", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	resp, err := f.fleetIndex(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer feed.Decisions
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer.Decisions
}

func TestReviewsAreAskedAsTheUser(t *testing.T) {
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Spec struct {
				ResourceAttributes struct{ Verb, Group, Resource, Namespace string }
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&review)
		a := review.Spec.ResourceAttributes
		asked := fmt.Sprintf("%s %s %s as %s %v", r.Method, r.URL.Path, a, r.Header.Get("Impersonate-User"), r.Header["Impersonate-Group"])
		const path = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews "
		switch asked {
		case path + "{list  pods shop} as cluster:hub:system:serviceaccount:a:b [team]":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"status":{"allowed":true}}`)
		case path + "{watch apps deployments } as cluster:hub:system:serviceaccount:a:b [team]":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"status":{"allowed":false}}`)
		case path + "{list  nodes } as cluster:hub:system:serviceaccount:a:b [team]":
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"message":"no system:basic-user"}`)
		case path + "{list  events } as cluster:hub:system:serviceaccount:a:b [team]":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"status":{"allowed":true},"x":"`+strings.Repeat("x", maxDecision)+`"}`)
		default:
			t.Errorf("asked %s", asked)
		}
	}, Access{Index: rows})
	user := map[string]string{"X-Remote-User": "system:serviceaccount:a:b", "X-Remote-Group": "team", "Authorization": "Bearer x"}
	code, got := f.review(t, `{"questions":[{"verb":"list","resource":"pods","namespace":"shop"},{"verb":"watch","group":"apps","resource":"deployments"},{"verb":"list","resource":"nodes"},{"verb":"list","resource":"events"}]}`, user)
	if code != http.StatusOK || len(got) != 4 || got[0] != (feed.Decision{Allowed: true}) || got[1] != (feed.Decision{}) ||
		got[2].Allowed || got[2].Undecided != "403: no system:basic-user" || !got[2].Refused || got[3].Allowed || got[3].Undecided == "" || got[3].Refused {
		t.Errorf("got %d, %+v", code, got)
	}
	for name, body := range map[string]string{
		"no JSON": "x", "many": `{"questions":[` + strings.Repeat(`{},`, feed.MaxQuestions) + `{}]}`, "long": `{"questions":[{"verb":"` + strings.Repeat("a", maxReview) + `"}]}`,
	} {
		if code, _ := f.review(t, body, user); code != http.StatusBadRequest {
			t.Errorf("%s: got %d", name, code)
		}
	}
	// A user who is not asserted here has no right, whatever the cluster would say.
	code, got = f.review(t, `{"questions":[{"verb":"list","resource":"pods"}]}`, map[string]string{"X-Remote-User": "system:admin"})
	if code != http.StatusOK || len(got) != 1 || got[0].Allowed || got[0].Undecided == "" {
		t.Errorf("a reserved name: got %d, %+v", code, got)
	}
}

func TestOwnerRefusesTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuses atomic.Bool
		access := Access{
			Owner: func() (ownerpolicy.Policy, error) { return ownerpolicy.Policy{NoIndex: refuses.Load()}, nil },
			Index: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		}
		handler := access.forIndex(http.NotFoundHandler())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/index", nil))
		}()
		synctest.Wait()
		refuses.Store(true)
		<-ended // no later than at the next look at the policy
		for _, path := range []string{"/index", "/reviews"} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
			if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "noIndex") {
				t.Errorf("%s: got %d %s", path, w.Code, w.Body)
			}
		}
	})
}
