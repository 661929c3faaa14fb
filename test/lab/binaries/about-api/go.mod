// A stand-in for sigs.k8s.io/about-api, which OCM 1.2.0 imports and which not
// every Go module proxy serves. It has what OCM uses, and no more.
module sigs.k8s.io/about-api

go 1.25.0

require (
	k8s.io/apimachinery v0.34.3
	k8s.io/client-go v0.34.3
)
