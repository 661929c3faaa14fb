// Package accesspolicy writes the status of AccessPolicies: whether one compiles, and whether it can be read which
// clusters it selects. The proxy API enforces policies without reading any of it; the status is for people, who learn from
// it that a policy refuses all that it selects. Package pkg/accesspolicy compiles, and package hubaccess/clusters
// selects, for the proxy API and here alike.
//
// # Files
//
//	reconciler.go  Reconciler
package accesspolicy
