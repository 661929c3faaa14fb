package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "proxy.open-cluster-management.io", Version: "v1alpha1"}

// Resource is the plural of ManagedProxyConfiguration.
const Resource = "managedproxyconfigurations"

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ManagedProxyConfiguration{}, &ManagedProxyConfigurationList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
