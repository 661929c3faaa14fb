// Package hubapi is the hub's kube-apiserver for tests, as far as the proxy API asks it
// about callers: TokenReview, SubjectAccessReview, and two ConfigMaps.
package hubapi

import (
	"encoding/json"
	"fmt"
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
)

// Hub answers as a hub's kube-apiserver does. New and Start make one.
type Hub struct {
	server *httptest.Server

	// Hold is called with what is asked about permissions, if it is not nil. It must
	// be set before the first question.
	Hold func(*authorizationv1.SubjectAccessReview)
	// ClientCA and FrontProxyCA are PEM bundles that the hub publishes.
	ClientCA, FrontProxyCA []byte

	// Mutex guards the fields below; Set locks it.
	sync.Mutex
	// Users are by token.
	Users map[string]authenticationv1.UserInfo
	// Errors are what a TokenReview says of a token that is not good.
	Errors map[string]string
	// Rules allow "<user or group> <verb> <resource>/<subresource> <name>", where
	// each may be *. The resource is <resource>.<group> for Karmada's groups.
	Rules []string
	// Down makes every review fail.
	Down bool
	// Reviews counts TokenReviews, and Asked lists what was asked about permissions.
	Reviews int
	Asked   []string
	exposed map[string]string
	// changed is closed, and replaced, when exposed is set: watches show it then.
	changed chan struct{}
	changes int
}

// New returns a Hub without a listener: its ServeHTTP is called.
func New() *Hub {
	return &Hub{Users: map[string]authenticationv1.UserInfo{}, Errors: map[string]string{}, changed: make(chan struct{})}
}

// Start returns a Hub that listens until the test ends.
func Start(t testing.TB, clientCA, frontProxyCA []byte) *Hub {
	hub := New()
	hub.ClientCA, hub.FrontProxyCA = clientCA, frontProxyCA
	hub.server = httptest.NewServer(hub)
	t.Cleanup(func() {
		// The watches of the proxy API end with it, which is before this.
		hub.server.CloseClientConnections()
		hub.server.Close()
	})
	return hub
}

// Client returns a client for a Hub that listens.
func (h *Hub) Client(t testing.TB) kubernetes.Interface {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: h.server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// User makes a token good.
func (h *Hub) User(token, name string, groups ...string) {
	h.Lock()
	defer h.Unlock()
	h.Users[token] = authenticationv1.UserInfo{Username: name, UID: "uid-of-" + name, Groups: groups, Extra: map[string]authenticationv1.ExtraValue{"example.org/Where": {"here", "there"}}}
}

// Set changes anything.
func (h *Hub) Set(change func(h *Hub)) {
	h.Lock()
	defer h.Unlock()
	change(h)
}

// Allow adds rules.
func (h *Hub) Allow(rules ...string) {
	h.Lock()
	defer h.Unlock()
	h.Rules = append(h.Rules, rules...)
}

// SetExposed sets the list of Services that clusters expose.
func (h *Hub) SetExposed(data map[string]string) {
	h.Lock()
	defer h.Unlock()
	h.exposed = data
	h.changes++
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		h.tokenReview(w, r)
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		h.accessReview(w, r)
	case strings.Contains(r.URL.Path, "/configmaps"):
		h.configMaps(w, r)
	default:
		writeStatus(w, http.StatusNotFound, r.URL.Path)
	}
}

func (h *Hub) tokenReview(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	h.Lock()
	defer h.Unlock()
	h.Reviews++
	if h.Down {
		writeStatus(w, http.StatusInternalServerError, "down")
		return
	}
	if u, ok := h.Users[review.Spec.Token]; ok {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: u, Audiences: review.Spec.Audiences}
	} else if review.Status.Error, ok = h.Errors[review.Spec.Token]; !ok {
		review.Status.Error = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

func (h *Hub) accessReview(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	if h.Hold != nil {
		h.Hold(&review)
	}
	h.Lock()
	defer h.Unlock()
	if h.Down {
		writeStatus(w, http.StatusInternalServerError, "down")
		return
	}
	if attributes := review.Spec.ResourceAttributes; attributes != nil {
		resource := attributes.Resource
		if strings.HasSuffix(attributes.Group, ".karmada.io") {
			resource += "." + attributes.Group
		}
		if attributes.Subresource != "" {
			resource += "/" + attributes.Subresource
		}
		h.Asked = append(h.Asked, strings.Join([]string{review.Spec.User, attributes.Verb, resource, attributes.Name}, " "))
		for _, who := range append([]string{review.Spec.User}, review.Spec.Groups...) {
			review.Status.Allowed = review.Status.Allowed || slices.ContainsFunc(h.Rules, func(rule string) bool {
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

func (h *Hub) configMaps(w http.ResponseWriter, r *http.Request) {
	h.Lock()
	meta := metav1.ObjectMeta{Name: "cluster-proxy-exposed-services", Namespace: "addons", ResourceVersion: "1"}
	item := corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta, Data: h.exposed}
	if strings.Contains(r.URL.Path, "/kube-system/") {
		item.Name, item.Namespace = "extension-apiserver-authentication", "kube-system"
		item.Data = map[string]string{
			"client-ca-file": string(h.ClientCA), "requestheader-client-ca-file": string(h.FrontProxyCA),
			"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-uid-headers": `["X-Remote-Uid"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`, "requestheader-allowed-names": `["front-proxy-client"]`,
		}
	}
	h.Unlock()
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
			h.watchExposed(w, r, item)
		}
		<-r.Context().Done()
	}
}

// watchExposed shows the list of Services that clusters expose whenever it was set.
func (h *Hub) watchExposed(w http.ResponseWriter, r *http.Request, item corev1.ConfigMap) {
	for seen := 0; ; {
		h.Lock()
		changes, changed := h.changes, h.changed
		item.Data, item.ResourceVersion = h.exposed, fmt.Sprint(2+changes)
		h.Unlock()
		if changes > seen {
			seen = changes
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": item})
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func writeStatus(w http.ResponseWriter, code int, message string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Message: message})
}
