package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pass is the record of a right to managed clusters that ends by itself. The kubectl plugin
// makes it, and with it what grants the right: a ClusterRole and a ClusterRoleBinding for the
// service account that the addon manager makes in the namespace for passes. All of these belong
// to the Pass and are gone with it. A Pass itself grants nothing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=passes,scope=Cluster,singular=pass
// +kubebuilder:printcolumn:name="Made by",type=string,JSONPath=`.spec.madeBy`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.spec.clusters`
// +kubebuilder:printcolumn:name="Sets",type=string,JSONPath=`.spec.clusterSets`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expires`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a pass has at most 63 characters"
type Pass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec never changes. To change a pass, revoke it and make another one.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a pass cannot be changed: revoke it and make another one"
	Spec PassSpec `json:"spec"`
}

// PassList is a list of them.
//
// +kubebuilder:object:root=true
type PassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Pass `json:"items"`
}

// PassSpec says which right a pass is the record of.
//
// +kubebuilder:validation:XValidation:rule="has(self.clusters) || has(self.clusterSets)",message="a pass is for clusters, clusterSets, or both"
type PassSpec struct {
	// MadeBy is the user of the hub who made the pass. The chart's
	// ValidatingAdmissionPolicy accepts nothing but the name of the user who creates it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	MadeBy string `json:"madeBy"`
	// Role says what the pass allows on the hub. The managed clusters decide in their
	// turn what its service account may do there.
	Role PassRole `json:"role"`
	// Expires is when the addon manager deletes the pass.
	Expires metav1.Time `json:"expires"`
	// Clusters are names of ManagedClusters.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Clusters []string `json:"clusters,omitempty"`
	// ClusterSets are names of ManagedClusterSets. The pass is for the clusters that are
	// in them at the time of a request.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ClusterSets []string `json:"clusterSets,omitempty"`
	// View is the FleetView by which all these clusters are reached at once.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	View string `json:"view,omitempty"`
}

// PassRole is what a pass allows on the hub.
// +kubebuilder:validation:Enum=Viewer;User
type PassRole string

// The roles, which follow the chart's ClusterRoles cluster-proxy-viewer and
// cluster-proxy-user.
const (
	// PassViewer reads, and opens no exec, attach, port-forward or Service.
	PassViewer PassRole = "Viewer"
	// PassUser sends any request.
	PassUser PassRole = "User"
)
