// Package api measures the HTTP path beside direct access to the same kube-apiserver, in a lab:
// make bench-api. BENCH_DELAY adds a round trip between agents and the hub.
//
// Files:
//
//	api_test.go      the rows, and those of requests and watches
//	bulk_test.go     large answers
//	policies_test.go requests beside AccessPolicies
//	figures_test.go  target figures, and the table
package api
