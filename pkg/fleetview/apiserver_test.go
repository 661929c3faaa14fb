package fleetview

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server"
)

// kube is a member that is a kube-apiserver's own code. It has one pod that is called web; its nodes
// can only be read.
type kube struct {
	name    string
	handler http.Handler
}

func (k *kube) Name() string { return k.name }
func (k *kube) UID() string  { return "uid-of-" + k.name }
func (k *kube) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("watch") {
		return roundTrip(k.handler.ServeHTTP, r)
	}
	recorder := httptest.NewRecorder() // an API server waits after an answer that nobody reads
	k.handler.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

func newKube(t *testing.T, name string) *kube {
	t.Helper()
	v1 := corev1.SchemeGroupVersion
	s := runtime.NewScheme()
	for _, of := range []schema.GroupVersion{v1, {Version: runtime.APIVersionInternal}} {
		s.AddKnownTypes(of, &corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.NodeList{})
	}
	metav1.AddToGroupVersion(s, v1)
	s.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	if err := metav1.AddMetaToScheme(s); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(s)
	pods, part, act := &podStore{readPods{rest.NewDefaultTableConvertor(corev1.Resource("pods"))}}, &podPart{}, &podAct{}
	group := &endpoints.APIGroupVersion{
		Root: "/api", GroupVersion: v1, OptionsExternalVersion: &v1, MetaGroupVersion: &metav1.SchemeGroupVersion,
		Storage: map[string]rest.Storage{
			"pods": pods, "nodes": &nodeStore{rest.NewDefaultTableConvertor(corev1.Resource("nodes"))},
			"pods/status": part, "pods/resize": part, "pods/ephemeralcontainers": part, "pods/scale": part,
			"pods/eviction": act, "pods/binding": act, "pods/token": act,
		},
		Serializer: codecs, ParameterCodec: runtime.NewParameterCodec(s), Typer: s, Creater: s, Convertor: s, ConvertabilityChecker: s, UnsafeConvertor: s, Defaulter: s,
		Namer: runtime.Namer(meta.NewAccessor()), TypeConverter: managedfields.NewDeducedTypeConverter(), EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(),
		Admit: admission.NewChainHandler(), MaxRequestBodyBytes: maxBody,
	}
	handler := server.NewAPIServerHandler(name, codecs, func(h http.Handler) http.Handler { return h }, nil)
	if _, _, err := group.InstallREST(handler.GoRestfulContainer); err != nil {
		t.Fatal(err)
	}
	info := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	chain := filters.WithRequestInfo(filters.WithAuditInit(handler), info)
	return &kube{name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { chain.ServeHTTP(watching{w}, r) })}
}

// watching is what an API server writes watches to.
type watching struct{ http.ResponseWriter }

func (watching) CloseNotify() <-chan bool { return nil }
func (w watching) Flush()                 { w.ResponseWriter.(http.Flusher).Flush() }

func pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u", ResourceVersion: "7"}}
}

type readPods struct{ rest.TableConvertor }

func (readPods) New() runtime.Object     { return &corev1.Pod{} }
func (readPods) NewList() runtime.Object { return &corev1.PodList{} }
func (readPods) Destroy()                {}
func (readPods) NamespaceScoped() bool   { return true }
func (readPods) GetSingularName() string { return "pod" }
func (readPods) Get(context.Context, string, *metav1.GetOptions) (runtime.Object, error) {
	return pod(), nil
}

func (readPods) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Pod{*pod()}}, nil
}

// podStore has every verb. It stores nothing.
type podStore struct{ readPods }

func (podStore) Watch(context.Context, *internalversion.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (podStore) Create(_ context.Context, o runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	return o, nil
}

func (podStore) Update(ctx context.Context, _ string, o rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions) (runtime.Object, bool, error) {
	updated, err := o.UpdatedObject(ctx, pod())
	return updated, false, err
}

func (podStore) Delete(context.Context, string, rest.ValidateObjectFunc, *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return &metav1.Status{Status: metav1.StatusSuccess}, true, nil
}

func (p podStore) DeleteCollection(ctx context.Context, _ rest.ValidateObjectFunc, _ *metav1.DeleteOptions, o *internalversion.ListOptions) (runtime.Object, error) {
	return p.List(ctx, o)
}

// podPart is a subresource that is read and changed.
type podPart struct{}

func (podPart) New() runtime.Object { return &corev1.Pod{} }
func (podPart) Destroy()            {}
func (podPart) Get(context.Context, string, *metav1.GetOptions) (runtime.Object, error) {
	return pod(), nil
}

func (podPart) Update(ctx context.Context, name string, o rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return podStore{}.Update(ctx, name, o, create, update, force, options)
}

// podAct is a subresource that is created.
type podAct struct{}

func (podAct) New() runtime.Object { return &corev1.Pod{} }
func (podAct) Destroy()            {}
func (podAct) Create(_ context.Context, _ string, o runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	return o, nil
}

// nodeStore can be read.
type nodeStore struct{ rest.TableConvertor }

func (nodeStore) New() runtime.Object     { return &corev1.Node{} }
func (nodeStore) NewList() runtime.Object { return &corev1.NodeList{} }
func (nodeStore) Destroy()                {}
func (nodeStore) NamespaceScoped() bool   { return false }
func (nodeStore) GetSingularName() string { return "node" }
func (nodeStore) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "n", ResourceVersion: "7"}}, nil
}

func (nodeStore) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
}

// plain is a request for a view of a cluster a, as a itself would be asked.
var plain = strings.NewReplacer("@a", "", "%40a", "", "fieldSelector=metadata.cluster%3Da", "")
