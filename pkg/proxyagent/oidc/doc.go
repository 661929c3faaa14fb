// Package oidc authenticates users of an OpenID Connect provider by their tokens, with
// the kube-apiserver's own authenticator, for managed clusters whose kube-apiserver
// does not know the provider. Flags and their defaults are upstream cluster-proxy's.
//
// A token must be of the issuer, for the client, signed with an allowed algorithm, and
// have the required claims. A token with a name or group that begins with a reserved
// prefix is refused.
//
// The CA of the provider is read again when its file changes; the one before is used until
// the provider was found with it. If the provider cannot be reached when the agent starts, it
// tries again every ten seconds. Until then it knows no user, and the kube-apiserver refuses
// their tokens.
//
// Files: options.go has the flags and their checks, provider.go the authenticator.
package oidc
