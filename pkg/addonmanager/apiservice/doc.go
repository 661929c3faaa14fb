// Package apiservice keeps the CA bundle of the APIServices by which the hub's
// kube-apiserver finds the proxy API: one for the addon's own API, and with the chart value
// karmadaAPI.enabled those for Karmada's. One of these names that leads to another namespace
// is Karmada's own, and is left alone.
//
// The chart makes the APIServices, so that they are removed with the release: a leftover
// one would keep namespaces of the hub from being deleted. The chart cannot know the
// CA. The controller writes spec.caBundle, and nothing else, whenever the Secret with
// the hub CA's bundle or the one with the proxy API's serving certificate changes, and
// again after a while, in case someone removed it. The bundle has every CA that is
// trusted during a rotation, so the hub trusts the proxy API all the time.
//
// # Files
//
//	reconciler.go  Reconciler
package apiservice
