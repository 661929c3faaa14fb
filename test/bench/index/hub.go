package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

// The views, and the label that says of which one a cluster is.
const (
	viewOfMany, viewOfLarge, viewOfAll, viewLive = "many", "large", "all", "live"
	sizeLabel                                    = "bench"
	ofMany, ofLarge                              = "many", "large"
)

// hub is the hub's kube-apiserver: its clusters and views, in which nothing changes, and what it says of callers.
type hub struct {
	*hubapi.Hub
	lists map[string][]byte
}

func newHub(s shape) (*hub, error) {
	meta := func(name, namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(uidOf(name + namespace)), ResourceVersion: "1", CreationTimestamp: metav1.NewTime(time.Now().Add(-24 * time.Hour))}
	}
	list := metav1.ListMeta{ResourceVersion: "1"}
	clusters, addons := clusterv1.ManagedClusterList{ListMeta: list}, addonv1alpha1.ManagedClusterAddOnList{ListMeta: list}
	all, _ := s.members()
	for i, m := range all {
		cluster := clusterv1.ManagedCluster{ObjectMeta: meta(m.name, ""), Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
		cluster.Labels = map[string]string{sizeLabel: ofMany}
		if i < s.Large {
			cluster.Labels[sizeLabel] = ofLarge
		}
		clusters.Items = append(clusters.Items, cluster)
		addons.Items = append(addons.Items, addonv1alpha1.ManagedClusterAddOn{ObjectMeta: meta(identity.AddonName, m.name)})
	}
	views := v1alpha1.FleetViewList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "FleetViewList"}, ListMeta: list}
	for _, view := range []struct {
		name, size string
		reads      v1alpha1.FleetViewReads
	}{{viewOfAll, "", v1alpha1.ReadsIndexed}, {viewOfMany, ofMany, v1alpha1.ReadsIndexed}, {viewOfLarge, ofLarge, v1alpha1.ReadsIndexed}, {viewLive, ofMany, v1alpha1.ReadsLive}} {
		made := v1alpha1.FleetView{ObjectMeta: meta(view.name, "")}
		if made.Spec.Reads = view.reads; view.size != "" {
			made.Spec.Clusters.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{sizeLabel: view.size}}
		}
		views.Items = append(views.Items, made)
	}
	h := &hub{Hub: hubapi.New(), lists: map[string][]byte{}}
	for path, objects := range map[string]any{
		"/apis/cluster.open-cluster-management.io/v1/managedclusters":          &clusters,
		"/apis/addon.open-cluster-management.io/v1alpha1/managedclusteraddons": &addons,
		"/apis/" + v1alpha1.GroupVersion.String() + "/fleetviews":              &views,
	} {
		var err error
		if h.lists[path], err = json.Marshal(objects); err != nil {
			return nil, err
		}
	}
	h.Allow("* * * *")
	return h, nil
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, ok := h.lists[r.URL.Path]
	switch query := r.URL.Query(); {
	case !ok:
		h.answer(w, r)
	case query.Has("sendInitialEvents"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
	case query.Has("watch"):
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(content)
	}
}

// answer answers what is asked about callers, which comes in the form that client-go likes.
func (h *hub) answer(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			var object runtime.Object
			if object, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
				body, err = json.Marshal(object)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	h.Hub.ServeHTTP(w, r)
}

// newUser makes a user of whom nobody has decided anything yet, and returns the token.
func (h *hub) newUser() string {
	h.Lock()
	n := len(h.Users)
	h.Unlock()
	name := fmt.Sprint("user-", n)
	h.User("token-"+name, name, "team")
	return "token-" + name
}
