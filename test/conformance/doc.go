// Package conformance runs konnectivity's own test suite, of the version that
// go.mod names, against our binaries as processes of their own: our server with
// konnectivity's clients, and with our agent and konnectivity's. The server has the
// flags that the chart gives it, and --konnectivity-agents. Clients have a certificate of
// the hub's CA with a role, and agents
// one of the agents' CA that names their cluster. Dials are routed by host alone:
// the clusters are called after what the suite dials, 127.0.0.1 for one.
// Agents have no --cluster-name, because with it they dial nothing but their own cluster's
// kube-apiserver and handler, and the suite wants its own servers dialed: what
// an agent dials is tested in package policy. There is no hub, and clusters are
// not watched.
//
// The suite's tests cannot be imported, so a copy of the module is made in a
// temporary folder, files are added that start a server as a process and look
// for the metrics that the suite asks for, and `go test` runs there. Nothing of
// the copy stays or is committed. A few lines of it are changed (changes).
//
// Where user namespaces are to be had, the suite runs in a network of its own, in
// which packets to its black hole vanish as it expects. Its HTTP client keeps no
// connections open to what it scrapes: the tests that look for leaks would find
// them. Tests of the suite that race may be tried again;
// they are listed with their reasons (racing).
//
// It is slow (the suite waits for time-outs), so it has its own make target:
// make conformance.
package conformance
