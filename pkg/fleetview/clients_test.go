package fleetview

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// configs are those of clients that prefer JSON and protobuf.
func configs(url string) map[string]*rest.Config {
	json := &rest.Config{Host: url, QPS: -1}
	proto := rest.CopyConfig(json)
	proto.ContentType, proto.AcceptContentTypes = protobufType, protobufType+","+fleet.JSONType
	return map[string]*rest.Config{"JSON": json, "protobuf": proto}
}

// TestClients uses a view by the clients of client-go.
func TestClients(t *testing.T) {
	a, b := newCluster("a", pods(7)...), newCluster("b", pods(3)...)
	view := testView(a, b)
	view.Qualified = true
	want := append(podNames("a", 7), podNames("b", 3)...)
	for name, config := range configs(New(Options{}).over(t, view).URL) {
		t.Run(name, func(t *testing.T) {
			typed := kubernetes.NewForConfigOrDie(config)
			meta := metadata.NewForConfigOrDie(config)
			untyped := dynamic.NewForConfigOrDie(config)
			resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
			lists := map[string]func(context.Context, metav1.ListOptions) (runtime.Object, error){
				"typed": func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return typed.CoreV1().Pods("").List(ctx, o)
				},
				"metadata": func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return meta.Resource(resource).List(ctx, o)
				},
				"dynamic": func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return untyped.Resource(resource).List(ctx, o)
				},
			}
			for name, list := range lists {
				for _, size := range []int64{2, 4, 500} {
					p := pager.New(list)
					p.PageSize = size
					got := []string{}
					if err := p.EachListItem(t.Context(), metav1.ListOptions{}, func(o runtime.Object) error {
						got = append(got, o.(metav1.Object).GetName())
						return nil
					}); err != nil {
						t.Fatalf("%s in pages of %d: %v", name, size, err)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s in pages of %d (-want +got):\n%s", name, size, diff)
					}
				}
			}
			checkWrites(t, typed)
		})
	}
}

// checkWrites creates, updates and deletes a pod.
func checkWrites(t *testing.T, client *kubernetes.Clientset) {
	t.Helper()
	pods := client.CoreV1().Pods("shop")
	created, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new@b"}}, metav1.CreateOptions{})
	if err != nil || created.Name != "new@b" || created.Annotations[fleet.AnnotationCluster] != "b" {
		t.Fatalf("creating: got %+v, %v", created, err)
	}
	former := created.DeepCopy()
	created.Labels = map[string]string{"a": "b"}
	updated, err := pods.Update(t.Context(), created, metav1.UpdateOptions{})
	if err != nil || updated.Labels["a"] != "b" || updated.ResourceVersion <= former.ResourceVersion {
		t.Fatalf("updating: got %+v, %v", updated, err)
	}
	if _, err := pods.Update(t.Context(), former, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("updating a former version: got %v, want a conflict", err)
	}
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pod, err := pods.Get(t.Context(), "new@b", metav1.GetOptions{})
		if err == nil {
			_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		}
		return err
	}); err != nil {
		t.Errorf("updating the status: %v", err)
	}
	last, err := pods.Get(t.Context(), "new@b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "new@b", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &former.ResourceVersion}}); !apierrors.IsConflict(err) {
		t.Errorf("deleting a former version: got %v, want a conflict", err)
	}
	if err := pods.Delete(t.Context(), "new@b", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &last.ResourceVersion, UID: &last.UID}}); err != nil {
		t.Errorf("deleting: %v", err)
	}
	if _, err := pods.Get(t.Context(), "new@b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("getting what was deleted: got %v, want not found", err)
	}
}

// TestNarrowedWatch watches objects of one cluster, which leaves the view.
func TestNarrowedWatch(t *testing.T) {
	for name, selector := range map[string]string{"cluster": "metadata.cluster%3Db", "name": "metadata.name%3Dweb-0000@b"} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newCluster("a", pods(1)...), newCluster("b", pods(1)...)
			view := testView(a, b)
			var left atomic.Bool
			all, rest := view.Members, testView(a).Members
			view.Members = func(ctx context.Context) ([]fleet.Member, error) {
				if left.Load() {
					return rest(ctx)
				}
				return all(ctx)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, shop+"?watch=true&timeoutSeconds=60&fieldSelector="+selector, nil)
			r.URL.Host, r.RequestURI = "", ""
			h := New(Options{})
			response, err := roundTrip(func(w http.ResponseWriter, r *http.Request) { h.Serve(w, r, view) }, r)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%s: got %+v, %v", name, response, err)
			}
			defer response.Body.Close()
			got := []string{}
			for events := json.NewDecoder(response.Body); ; {
				var event struct {
					Type   string
					Object object
				}
				if err := events.Decode(&event); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got = append(got, fmt.Sprintf("%s %s of %s", event.Type, event.Object.name(), event.Object.cluster()))
				left.Store(true)
			}
			if diff := cmp.Diff([]string{"ADDED web-0000@b of b", "DELETED web-0000@b of b"}, got); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", name, diff)
			}
			if requests := a.asked(); len(requests) != 0 {
				t.Errorf("%s: a was asked %+v, want nothing", name, requests)
			}
		})
	}
}

func TestWatchRefusals(t *testing.T) {
	a := newCluster("a", pods(1)...)
	h := New(Options{})
	for url, want := range map[string]int{
		shop + "?watch=true&fieldSelector=metadata.cluster%3Dx": 404,
		shop + "?watch=1&resourceVersion=7":                     410,
		shop + "?watch&timeoutSeconds=x":                        400,
		shop + "?watch=false&limit=1":                           200,
		shop + "?watch=0&limit=1":                               200,
	} {
		if got := h.getList(t, testView(a), url); got.code != want {
			t.Errorf("%s: got %d %q, want %d", url, got.code, got.body, want)
		}
	}
}
