// Package outage lets the hub's past answers stand while the hub cannot be asked.
//
// It cannot have changed its mind. Grace remembers what it answered: the user of a
// token, that it does not know a token, and that a user may do something to a cluster
// (the whole question, with groups and verb). If the hub's kube-apiserver cannot be
// asked, the same question has the same answer for the grace (--hub-outage-grace, 10
// minutes) after it was last answered (and the 5 s for which answers are cached in any
// case), and never beyond the expiry in a JWT. "Cannot be asked" is a connection that
// fails, a time-out, and 5xx or 429 as answer; a refusal is an answer, and deletes what
// is remembered. The chart gives these questions a priority level of their own at the hub, so that
// whoever overloads that of all service accounts makes no 429. An authentication webhook of the hub that does not answer is not an
// outage either: the hub was asked.
//
// One failed question makes no outage: a probe must fail too, in which no client has a
// part (Grace.look). Otherwise a user who lost a right could keep it by tokens that
// the hub fails on. A slow hub is not away either: a probe may take 6 s, and those who wait
// share one. From then on no question that has a past answer waits for the hub, and
// the hub is probed every second until it has answered three times in a row. Remembered
// answers have 32 MiB at most. Each replica remembers what it was asked itself, and
// one that starts in an outage remembers nothing. The log, an annotation of audit
// events and metrics (hub_outage, hub_outage_answers_total) show it.
//
// # Files
//
//	outage.go   Grace: past answers stand while the hub cannot be asked
//	answers.go  past answers, in a bounded number of bytes
package outage
