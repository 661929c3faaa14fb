// Package agentheaders is what the proxy API and the agents' handlers have agreed
// on about headers: who a request is from is in Kubernetes' headers for front
// proxies (X-Remote-*), which Service it is for is in upstream's Cluster-Proxy-*.
//
// Both ends delete what could be taken for one of these before they set their
// own, and some servers take an underscore for a hyphen. So names are compared
// here and nowhere else: by their beginnings, in any case, with an underscore
// equal to a hyphen.
package agentheaders
