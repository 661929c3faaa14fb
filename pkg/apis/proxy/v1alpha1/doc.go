// Package v1alpha1 is the API by which the addon is configured. It has the
// group, the names and the fields of OCM's cluster-proxy, so that objects made
// for that go on working.
//
// +kubebuilder:object:generate=true
// +groupName=proxy.open-cluster-management.io
package v1alpha1
