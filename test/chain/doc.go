// Package chain runs the processes of the addon in a row, with everything that
// is around them in the test: the hub's API, a managed kube-apiserver, users, and
// taps between the processes. It asks what needs all of them and no cluster: what
// either end reads when one in the middle is killed, what a proxy server gets to
// see, and what is in the logs.
//
// The processes are this test's own program, started again, so that they can be
// killed and their output read.
package chain
