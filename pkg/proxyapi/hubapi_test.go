package proxyapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// fakeHubAPI is the hub's kube-apiserver, as far as the proxy API asks it:
// TokenReview, SubjectAccessReview, and two ConfigMaps.
type fakeHubAPI struct {
	server *httptest.Server

	mu sync.Mutex
	// users are by token.
	users map[string]authenticationv1.UserInfo
	// errors are what a TokenReview says of a token that is not good.
	errors map[string]string
	// rules allow "<user or group> <verb> <resource>/<subresource> <name>", where
	// each may be *.
	rules []string
	// hold is called with what is asked about permissions, if it is not nil.
	hold func(*authorizationv1.SubjectAccessReview)
	// down makes every review fail.
	down    bool
	reviews int
	asked   []string
	exposed map[string]string
	// changed is closed when exposed is set: watches show it then.
	changed  chan struct{}
	frontCA  []byte
	clientCA []byte
}

func startHubAPI(t testing.TB, w *world) *fakeHubAPI {
	api := &fakeHubAPI{users: map[string]authenticationv1.UserInfo{}, errors: map[string]string{}, changed: make(chan struct{}),
		clientCA: newUsersCA(t, w, "users"), frontCA: newUsersCA(t, w, "front-proxy")}
	api.server = httptest.NewServer(api)
	t.Cleanup(func() {
		// The watches of the proxy API end with it, which is before this.
		api.server.CloseClientConnections()
		api.server.Close()
	})
	return api
}

// newUsersCA makes a CA of the hub, and the files of it.
func newUsersCA(t testing.TB, w *world, name string) []byte {
	ca := pkitest.NewCA(t, name)
	w.cas[name] = ca
	return ca.CertPEM()
}

func (a *fakeHubAPI) client(t testing.TB) kubernetes.Interface {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: a.server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// user makes a token good.
func (a *fakeHubAPI) user(token, name string, groups ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users[token] = authenticationv1.UserInfo{Username: name, UID: "uid-of-" + name, Groups: groups, Extra: map[string]authenticationv1.ExtraValue{"example.org/Where": {"here", "there"}}}
}

// set changes anything.
func (a *fakeHubAPI) set(change func(a *fakeHubAPI)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

func (a *fakeHubAPI) allow(rules ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rules = append(a.rules, rules...)
}

// setExposed is the list of Services, before the first look at it.
func (a *fakeHubAPI) setExposed(data map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.exposed = data
	close(a.changed)
}

func (a *fakeHubAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		a.tokenReview(w, r)
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		a.accessReview(w, r)
	case strings.Contains(r.URL.Path, "/configmaps"):
		a.configMaps(w, r)
	default:
		writeStatus(w, http.StatusNotFound, r.URL.Path)
	}
}

func (a *fakeHubAPI) tokenReview(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reviews++
	if a.down {
		writeStatus(w, http.StatusInternalServerError, "down")
		return
	}
	if u, ok := a.users[review.Spec.Token]; ok {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: u, Audiences: review.Spec.Audiences}
	} else if review.Status.Error, ok = a.errors[review.Spec.Token]; !ok {
		review.Status.Error = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

func (a *fakeHubAPI) accessReview(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	if a.hold != nil {
		a.hold(&review)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		writeStatus(w, http.StatusInternalServerError, "down")
		return
	}
	if attributes := review.Spec.ResourceAttributes; attributes != nil {
		resource := attributes.Resource
		if attributes.Subresource != "" {
			resource += "/" + attributes.Subresource
		}
		a.asked = append(a.asked, strings.Join([]string{review.Spec.User, attributes.Verb, resource, attributes.Name}, " "))
		for _, who := range append([]string{review.Spec.User}, review.Spec.Groups...) {
			review.Status.Allowed = review.Status.Allowed || slices.ContainsFunc(a.rules, func(rule string) bool {
				want := strings.Split(rule, " ")
				match := func(i int, value string) bool { return want[i] == "*" || want[i] == value }
				return match(0, who) && match(1, attributes.Verb) && match(2, resource) && match(3, attributes.Name)
			})
		}
	} else {
		review.Status.Allowed = review.Spec.NonResourceAttributes != nil
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

func (a *fakeHubAPI) configMaps(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	meta := metav1.ObjectMeta{Name: "cluster-proxy-exposed-services", Namespace: "addons", ResourceVersion: "1"}
	item := corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta, Data: a.exposed}
	if strings.Contains(r.URL.Path, "/kube-system/") {
		item.Name, item.Namespace = configName, configNamespace
		item.Data = map[string]string{
			"client-ca-file": string(a.clientCA), "requestheader-client-ca-file": string(a.frontCA),
			"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-uid-headers": `["X-Remote-Uid"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`, "requestheader-allowed-names": `["front-proxy-client"]`,
		}
	}
	a.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/"+item.Name):
		_ = json.NewEncoder(w).Encode(item)
	case r.URL.Query().Has("sendInitialEvents"):
		writeStatus(w, http.StatusUnprocessableEntity, "sendInitialEvents is not supported")
	case r.URL.Query().Get("watch") == "":
		list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: "2"}}
		if item.Data != nil {
			list.Items = append(list.Items, item)
		}
		_ = json.NewEncoder(w).Encode(list)
	default:
		_ = http.NewResponseController(w).Flush()
		if item.Namespace == "addons" {
			select {
			case <-a.changed:
				a.mu.Lock()
				item.Data, item.ResourceVersion = a.exposed, "3"
				a.mu.Unlock()
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": item})
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
			}
		}
		<-r.Context().Done()
	}
}
