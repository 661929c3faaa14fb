// Package fallback tests that old and new meet: our proxy server with our agent
// and konnectivity's, and konnectivity's server with konnectivity's agent, reached
// in every way that clients have, over mutual TLS. Where all are ours they speak
// carriers; whatever is konnectivity's makes the others fall back to its protocol.
// Our agent does not speak with konnectivity's server.
//
// Servers and agents are processes of their own, started with the flags that
// konnectivity's have. They are this test's program: konnectivity's commands
// are packages, of the version that go.mod names, and so are ours.
package fallback
