// Package v1alpha1 is the API by which the addon is configured, by which views of
// many clusters are defined and access is restricted, and in which passes are recorded. ManagedProxyConfiguration has the group, the name and the
// fields of OCM's cluster-proxy, so that objects made for that go on working.
// FleetView, AccessPolicy and Pass are ours.
//
// +kubebuilder:object:generate=true
// +groupName=proxy.open-cluster-management.io
// +k8s:openapi-model-package=io.open-cluster-management.proxy.v1alpha1
package v1alpha1
