// Package fault says why a cluster has no part in an answer of a view, and tells clients:
// in Warnings, if others have one, and as a Status, if none has or the view wants all.
//
// A cluster that refuses a request has answered it. One that does not answer, or answers
// with what is neither success nor refusal, may have what is asked for. Members'
// own words get to clients cut and without control characters.
//
// Clients of client-go repeat a request of any kind up to ten times if its answer has
// Retry-After. Errors of a moment have one, of a second. Errors of which it is known that
// asking again takes as long or changes nothing have none (Slow, Away), and neither have writes of
// which the outcome is not known.
//
// # Files
//
//	status.go   refusals of a view as a Status
//	warning.go  Warnings
//	fault.go    Fault: one cluster's, and how it is read
package fault
