// Package karmada writes the status of ResourceRegistries, which the hub stores as
// KarmadaResourceRegistries: whether one can be served. The proxy API serves registries
// without reading any of it; the status is for people. Package hubaccess/clusters decides
// what a registry selects, for the proxy API and here alike.
//
// # Files
//
//	reconciler.go  Reconciler
package karmada
