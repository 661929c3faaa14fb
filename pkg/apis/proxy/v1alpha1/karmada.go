package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KarmadaResourceRegistry is where a ResourceRegistry of Karmada's group search.karmada.io
// is stored. An API that is aggregated cannot have a CustomResourceDefinition, so the proxy
// API serves resourceregistries.search.karmada.io from these objects, for hubs with the
// chart value karmadaAPI.enabled.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KarmadaResourceRegistry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what of which clusters the view has that Karmada calls proxying.
	Spec ResourceRegistrySpec `json:"spec"`
	// +optional
	Status ResourceRegistryStatus `json:"status,omitempty"`
}

// KarmadaResourceRegistryList is a list of them.
//
// +kubebuilder:object:root=true
type KarmadaResourceRegistryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KarmadaResourceRegistry `json:"items"`
}

// ResourceRegistrySpec has resources of clusters.
//
// +k8s:openapi-gen=true
type ResourceRegistrySpec struct {
	// TargetCluster selects the clusters.
	TargetCluster ClusterAffinity `json:"targetCluster"`
	// ResourceSelectors select the resources.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	ResourceSelectors []RegistrySelector `json:"resourceSelectors"`
	// BackendStore has no meaning here: nothing is cached.
	// +optional
	BackendStore *RegistryBackend `json:"backendStore,omitempty"`
}

// ClusterAffinity selects the clusters that all of its terms select, or all clusters if it
// has none.
//
// +k8s:openapi-gen=true
type ClusterAffinity struct {
	// LabelSelector selects by labels of ManagedClusters.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// FieldSelector selects by the fields provider and region, which are ClusterClaims.
	// +optional
	FieldSelector *ClusterFieldSelector `json:"fieldSelector,omitempty"`
	// ClusterNames are the ones to select.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	ClusterNames []string `json:"clusterNames,omitempty"`
	// ExcludeClusters are never selected.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	ExcludeClusters []string `json:"exclude,omitempty"`
}

// ClusterFieldSelector selects clusters by their fields.
//
// +k8s:openapi-gen=true
type ClusterFieldSelector struct {
	// MatchExpressions must all be met.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	MatchExpressions []ClusterFieldRequirement `json:"matchExpressions,omitempty"`
}

// ClusterFieldRequirement is met by a cluster whose field has, or has not, one of the values.
//
// +k8s:openapi-gen=true
type ClusterFieldRequirement struct {
	// Key is the field.
	Key string `json:"key"`
	// Operator is In or NotIn.
	Operator string `json:"operator"`
	// Values of the field.
	// +optional
	// +listType=atomic
	Values []string `json:"values,omitempty"`
}

// RegistrySelector selects one kind.
//
// +k8s:openapi-gen=true
type RegistrySelector struct {
	// APIVersion has the kind's group. Every version of the group is meant.
	APIVersion string `json:"apiVersion"`
	// Kind of the objects.
	Kind string `json:"kind"`
	// Namespace of the objects. Empty means all.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// RegistryBackend is where Karmada would keep objects for searches.
//
// +k8s:openapi-gen=true
type RegistryBackend struct {
	// OpenSearch is such a store.
	// +optional
	OpenSearch *OpenSearchBackend `json:"openSearch,omitempty"`
}

// OpenSearchBackend is a store that nothing connects to.
//
// +k8s:openapi-gen=true
type OpenSearchBackend struct {
	// Addresses of the store.
	// +listType=atomic
	Addresses []string `json:"addresses"`
	// SecretRef names a Secret that nothing reads.
	SecretRef RegistrySecret `json:"secretRef"`
}

// RegistrySecret names a Secret.
//
// +k8s:openapi-gen=true
type RegistrySecret struct {
	// Namespace of the Secret.
	Namespace string `json:"namespace"`
	// Name of the Secret.
	Name string `json:"name"`
}

const (
	// ConditionTypeRegistryValid is False while a registry asks for something that cannot
	// be. It serves nothing then.
	ConditionTypeRegistryValid = "Valid"
	// ReasonRegistryValid is the reason while it is True.
	ReasonRegistryValid = "Valid"
	// ReasonTargetClusterInvalid means that spec.targetCluster cannot be met.
	ReasonTargetClusterInvalid = "TargetClusterInvalid"
	// ReasonResourceSelectorInvalid means that spec.resourceSelectors cannot be met.
	ReasonResourceSelectorInvalid = "ResourceSelectorInvalid"
)

// ResourceRegistryStatus says whether a registry is valid.
//
// +k8s:openapi-gen=true
type ResourceRegistryStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
