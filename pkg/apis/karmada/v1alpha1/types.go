package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// Cluster is a managed cluster in the form of cluster.karmada.io.
//
// +kubebuilder:object:root=true
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSpec   `json:"spec"`
	Status ClusterStatus `json:"status,omitempty"`
}

// SyncModePull is the mode of every cluster: its agent dials the hub.
const SyncModePull = "Pull"

// ClusterSpec says what a cluster is.
type ClusterSpec struct {
	// SyncMode is Pull.
	SyncMode string `json:"syncMode"`
	// Provider and Region are ClusterClaims of the cluster.
	Provider string `json:"provider,omitempty"`
	Region   string `json:"region,omitempty"`
}

// ConditionReady is whether a cluster is reachable.
const ConditionReady = "Ready"

// ClusterStatus says in which state a cluster is.
type ClusterStatus struct {
	KubernetesVersion string             `json:"kubernetesVersion,omitempty"`
	Conditions        []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterList is a list of clusters that the caller may reach.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// ResourceRegistry is a registry of search.karmada.io.
//
// +kubebuilder:object:root=true
type ResourceRegistry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   proxyv1alpha1.ResourceRegistrySpec   `json:"spec,omitempty"`
	Status proxyv1alpha1.ResourceRegistryStatus `json:"status,omitempty"`
}

// ResourceRegistryList is a list of them.
//
// +kubebuilder:object:root=true
type ResourceRegistryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ResourceRegistry `json:"items"`
}
