// Package v1alpha1 holds the kinds of Karmada's API groups cluster.karmada.io and
// search.karmada.io that the proxy API serves, as far as they mean something on a hub of
// OCM. A Cluster is made of a ManagedCluster and cannot be written. A ResourceRegistry is
// stored as a KarmadaResourceRegistry of package proxy/v1alpha1, whose spec and status it has.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
// +k8s:openapi-gen=true
package v1alpha1
