// Package agentheaders is what the proxy API and the agents' handlers have agreed
// on about headers: who a request is from is in Kubernetes' headers for front
// proxies (X-Remote-*), which Service it is for is in upstream's Cluster-Proxy-*.
//
// Both ends delete what could be taken for one of these before they set their
// own, and some servers take an underscore for a hyphen. So names are compared
// here and nowhere else: by their beginnings, in any case, with an underscore
// equal to a hyphen.
//
// The same goes for what is an upgrade. The hub grants the right to it, the
// managed cluster's owner may cap it, and both ends choose connections by it: if
// one of them read it in a way of its own, a request could be an ordinary one for
// whoever decides, and a stream for whoever serves it. So IsUpgrade is the widest
// reading that there is, and nobody has another; and no answer changes the
// protocol unless WasAskedFor says so, which is the narrowest.
package agentheaders
