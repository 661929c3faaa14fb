// Package apihandler is the HTTPS server inside the agent that requests from the
// hub's proxy API arrive at. It forwards them to the managed cluster's
// kube-apiserver.
//
// Who authenticates whom: the handler shows the agent's certificate, whose name
// is this cluster's and no other's, and demands a certificate of the hub CA with
// the role of the proxy API. A connection without it is not answered. TLS runs
// from the proxy API to here, so the proxy server in between sees ciphertext.
//
// The bearer token of a request goes through unchanged: it is the managed
// cluster's business whether it knows it, and what its owner may do. The agent
// never adds a credential of its own; a request without one is anonymous.
// Headers that ask for impersonation travel with the token that must have the
// right to it.
//
// Requests share pooled HTTP/2 connections to the kube-apiserver. Those that ask
// for an upgrade (exec, attach, port-forward) get an HTTP/1.1 connection of
// their own, because HTTP/2 has none.
//
// What fails: a kube-apiserver that cannot be reached is 502, one that does not
// answer in time 504, both as a metav1.Status that says which hop it was. A
// request that ends or is cut off on one side is ended on the other.
package apihandler
