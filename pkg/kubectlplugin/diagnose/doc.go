// Package diagnose has the commands that say what is wrong: status, check, test, version and
// bundle. None of them changes anything.
//
// check asks the hub's parts first and then each cluster, at most cli.AskedAtOnce at a time.
// Each outcome is a finding with an ID that does not change between releases, a text and a
// remedy. A finding about what the user may not read is skipped; it is never a good one.
//
// # Files
//
//	bundle.go        bundle: everything that somebody else needs to find a fault
//	bundlefiles.go   what is in it
//	archive.go       the file
//	redact.go        without credentials
//	probe.go         test: one request of each kind
//	check.go         check: what is wrong
//	precheck.go      check --pre: what an upgrade will not take over
//	checkcluster.go  with a cluster and its tunnel
//	checkhub.go      with the hub's parts
//	finding.go       the outcome of one check
//	version.go       version: of all parts
//	status.go        status: which clusters can be reached
package diagnose
