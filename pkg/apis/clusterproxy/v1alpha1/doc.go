// Package v1alpha1 holds the kinds of the aggregated API
// clusterproxy.open-cluster-management.io/v1alpha1, which the proxy API serves
// on the hub. Nothing of it is stored: it shows what the hub knows, to those who
// may reach it.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.clusterproxy.v1alpha1
package v1alpha1
