package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of every kind of this package, and so is SchemeGroupVersion.
var (
	GroupVersion       = schema.GroupVersion{Group: "proxy.open-cluster-management.io", Version: "v1alpha1"}
	SchemeGroupVersion = GroupVersion
)

// SchemeBuilder and AddToScheme register the kinds of this package.
var (
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	AddToScheme   = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ManagedProxyConfiguration{}, &ManagedProxyConfigurationList{}, &FleetView{}, &FleetViewList{}, &Pass{}, &PassList{},
		&KarmadaResourceRegistry{}, &KarmadaResourceRegistryList{}, &AccessPolicy{}, &AccessPolicyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Resource qualifies a resource with the group.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}
