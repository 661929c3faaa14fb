// Package authn finds the user of a request by asking the hub.
//
// Authenticator finds the user of a request by client certificate, by the hub's front
// proxy, or by TokenReview. A caller whom the hub does not know may still be a user of
// a managed cluster, whose credential is then sent there; so the words "the hub does
// not know this token" are as important as "this is the token of jane". Only a
// TokenReview that says "invalid bearer token" and nothing else, or adds only that no
// key of the hub made the signature, means that (tokenreview.go). All other answers
// are errors, and an error is never cached. A token for the proxy API alone
// (identity.ProxyAPIAudience) is one of the hub's too: the proxy API takes it, and the
// hub's kube-apiserver does not.
//
// # How often unverified credentials may be tried
//
// A credential is unverified until the hub or a cluster accepted it once. Requests
// with unverified credentials are rate limited, so that a flood of bad tokens costs
// neither the hub nor users with good ones: from each source (an IPv4 address, an
// IPv6 /64), from each network (/16, /40), and from all together, which also bounds a
// flood that cycles through addresses. JWTs of an issuer and key of which the hub knew
// a token before have limits of their own: a flood of other tokens takes nothing from
// a token that is new and good, even from the same address (clients behind one NAT).
// A flood of tokens that copy issuer and key does, until the good one was accepted
// once; so does any flood to new tokens that are no JWTs, or a cluster's. The hub is
// asked about at most 32 unverified credentials at a time, and sources take turns.
// Refusals above the limits are delayed a little, because an immediate refusal invites
// the next request. Questions about open streams, whose credentials the hub knew, are not
// limited: a flood must not hide that it knows one no more.
//
// # Files
//
//	authenticator.go  who sends a request
//	tokenreview.go    what the hub's answer about a token means
//	ratelimit.go      how often unverified credentials may be tried
package authn
