// Package oidc knows users of an OpenID Connect provider by their tokens, with
// the kube-apiserver's own authenticator, for managed clusters whose
// kube-apiserver knows nothing of that provider. Flags and their defaults are
// upstream cluster-proxy's.
//
// A token must be of the issuer, for the client, signed with an allowed
// algorithm, and have the required claims. Names and groups that begin with a
// reserved prefix make the whole token worthless.
//
// The CA of the provider is read again when its file changes. A provider that
// cannot be reached is tried again every ten seconds; until then no user is
// known, and tokens go to the kube-apiserver, which refuses them.
//
// Files: options.go has the flags and their checks, provider.go the authenticator.
package oidc
