package fleetview

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// started is an informer that runs until the test ends.
func started(t *testing.T, informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return informer
}

// stored is what an informer holds: NAME@CLUSTER and a label.
func stored(t *testing.T, informer cache.SharedIndexInformer) []string {
	var all []string
	for _, o := range informer.GetStore().List() {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m.GetName()+" "+m.GetAnnotations()[fleet.AnnotationCluster]+" "+m.GetLabels()["a"])
	}
	slices.Sort(all)
	return all
}

// awaitStored waits until an informer holds what is wanted.
func awaitStored(t *testing.T, informer cache.SharedIndexInformer, what string, want ...string) {
	t.Helper()
	wait.Poll{Every: 5 * time.Millisecond}.Success(t, what, func() error {
		if diff := cmp.Diff(want, stored(t, informer)); diff != "" {
			return fmt.Errorf("the informer holds (-want +got):\n%s", diff)
		}
		return nil
	})
}

// TestInformers follows a view with the informers of client-go, in the media types that
// they ask for by default and in JSON.
func TestInformers(t *testing.T) {
	resources := map[string]schema.GroupVersionResource{
		"pods": {Version: "v1", Resource: "pods"}, "widgets": {Group: "example.com", Version: "v1", Resource: "widgets"},
	}
	makers := map[string]func(*rest.Config, schema.GroupVersionResource) cache.SharedIndexInformer{
		"typed": func(config *rest.Config, _ schema.GroupVersionResource) cache.SharedIndexInformer {
			return informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0).Core().V1().Pods().Informer()
		},
		"metadata": func(config *rest.Config, resource schema.GroupVersionResource) cache.SharedIndexInformer {
			return metadatainformer.NewSharedInformerFactory(metadata.NewForConfigOrDie(config), 0).ForResource(resource).Informer()
		},
		"dynamic": func(config *rest.Config, resource schema.GroupVersionResource) cache.SharedIndexInformer {
			return dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0).ForResource(resource).Informer()
		},
	}
	for _, test := range []struct{ maker, accepts, resource, asked string }{
		{"typed", request.ProtobufType + "," + fleet.JSONType, "pods", fleet.JSONType},
		{"typed", request.ProtobufType + ", */*", "pods", fleet.JSONType},
		{"typed", fleet.JSONType, "pods", fleet.JSONType},
		{"metadata", "", "pods", fleet.JSONType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
		{"metadata", "", "widgets", fleet.JSONType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
		{"dynamic", "", "pods", fleet.JSONType},
		{"dynamic", "", "widgets", fleet.JSONType},
	} {
		t.Run(test.maker+" "+test.resource+" "+test.accepts, func(t *testing.T) {
			path := "/api/v1/namespaces/shop/pods/"
			if test.resource == "widgets" {
				path = "/apis/example.com/v1/namespaces/shop/widgets/"
			}
			a, b := newCluster("a", path+"x", path+"y"), newCluster("b", path+"x")
			view := testView(a, b)
			view.Qualified = true
			h := New(Options{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.Serve(w, r, view) }))
			t.Cleanup(server.Close)
			config := &rest.Config{Host: server.URL, QPS: -1}
			config.AcceptContentTypes, config.ContentType = test.accepts, fleet.JSONType
			informer := started(t, makers[test.maker](config, resources[test.resource]))
			awaitStored(t, informer, "at first", "x@a a ", "x@b b ", "y@a a ")
			if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
				t.Fatal("the informer has not synced")
			}
			a.set(path+"x", object{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}})
			b.set(path+"z", nil)
			awaitStored(t, informer, "after changes", "x@a a b", "x@b b ", "y@a a ", "z@b b ")
			asked := a.asked()
			last := asked[len(asked)-1]
			if got := last.header.Get("Accept"); !strings.Contains(last.url, "watch=1") || got != test.asked {
				t.Errorf("the member was asked %q for %q, want a watch in %q", last.url, got, test.asked)
			}
		})
	}
}

func TestWatchParameters(t *testing.T) {
	view := testView(newCluster("a"))
	h := New(Options{})
	for query, want := range map[string]int{
		"sendInitialEvents=true": 422, "sendInitialEvents=false": 422, "resourceVersionMatch=NotOlderThan": 422,
		"sendInitialEvents=true&resourceVersionMatch=Exact": 422, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x": 422,
		"timeoutSeconds=x": 400, "resourceVersion=7": 410, "fieldSelector=a%3D%3D%3Db": 400,
	} {
		answer := h.getList(t, view, shop+"?watch=true&"+query)
		if answer.code != want {
			t.Errorf("%s: got %d %q, want %d", query, answer.code, answer.body, want)
		}
	}
}
