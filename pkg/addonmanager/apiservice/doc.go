// Package apiservice keeps the CA bundle of the APIService by which the hub's
// kube-apiserver finds the proxy API.
//
// The chart makes the APIService, so that it goes with the release: one that is
// left behind would keep namespaces of the hub from being deleted. The chart
// cannot know the CA. The controller writes spec.caBundle, and nothing else,
// whenever the Secret with the hub CA's bundle or the one with the proxy API's
// serving certificate changes, and again after a while, in case it was
// removed. The bundle has every CA that is trusted during a rotation, so
// the hub goes on trusting the proxy API through all of it.
//
// # Files
//
//	reconciler.go  Reconciler
package apiservice
