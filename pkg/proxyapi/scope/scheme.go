package scope

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

var (
	Scheme = newScheme()
	Codecs = serializer.NewCodecFactory(Scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, karmadav1alpha1.AddToScheme, proxyv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // a mistake in the package of the types
		}
	}
	core := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, core)
	s.AddUnversionedTypes(core, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return s
}
