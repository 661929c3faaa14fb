// Package upstream runs the e2e suite of OCM's own cluster-proxy, of the release that
// users come from (lab.UpstreamVersion), against our chart on real nodes.
//
// As in the suite's own environment the hub is a managed cluster of itself, called
// "loopback", the suite runs as a Job on the hub, and the Services that it asks are
// those of its manifests. The images of these Services cannot be had without a
// registry, so the lab packs stand-ins under the same names. The suite is unchanged. Its
// Job writes a report to the node, and is not tried again (jobChanges).
//
// The chart gets the values that the suite's Makefile gives to upstream's chart, and
// what README tells its users to set for what this release does not allow by default
// (values). failing.txt names the cases that must fail, how, and why; every other one
// must pass. ../upstream.txt is the result of the last run.
//
// It needs root on Linux and takes minutes, so it has its own make target:
// make conformance-upstream.
//
// suite_test.go is the run, report_test.go reads the suite's report and failing.txt.
package upstream
