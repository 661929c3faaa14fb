// Package v1alpha1 has the type of a cluster's properties, as the KEP on
// ClusterProperty (2149) describes it. It is written for the lab: OCM's
// registration agent reads properties when its feature gate ClusterProperty is
// on, and the lab leaves it off.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "about.k8s.io", Version: "v1alpha1"}

// ClusterProperty is a fact that a cluster says of itself.
type ClusterProperty struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ClusterPropertySpec `json:"spec,omitempty"`
}

// ClusterPropertySpec holds the value of a property.
type ClusterPropertySpec struct {
	Value string `json:"value"`
}

// ClusterPropertyList is a list of properties.
type ClusterPropertyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterProperty `json:"items"`
}

func (in ClusterProperty) copy() ClusterProperty {
	in.ObjectMeta = *in.ObjectMeta.DeepCopy()
	return in
}

// DeepCopyObject implements runtime.Object.
func (in *ClusterProperty) DeepCopyObject() runtime.Object {
	out := in.copy()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (in *ClusterPropertyList) DeepCopyObject() runtime.Object {
	out := &ClusterPropertyList{TypeMeta: in.TypeMeta, ListMeta: *in.ListMeta.DeepCopy()}
	for _, item := range in.Items {
		out.Items = append(out.Items, item.copy())
	}
	return out
}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ClusterProperty{}, &ClusterPropertyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
