// Package fallback tests that old and new meet: every pair of our proxy server
// and konnectivity's with our agent and konnectivity's, reached in every way
// that clients have, over mutual TLS. Where both are ours and so is the dialer,
// they speak carriers; whatever is konnectivity's makes the others fall back to
// its protocol.
//
// Servers and agents are processes of their own, started with the flags that
// konnectivity's have. They are this test's program: konnectivity's commands
// are packages, of the version that go.mod names, and so are ours.
package fallback
