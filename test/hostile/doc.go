// Package hostile tries what an attacker would, against the real processes of a
// lab, and expects each attempt to fail and to leave the log line and the metric
// (or, where a kube-apiserver refuses, the audit event) by which an operator
// notices.
//
// The attackers are: the agent of a managed cluster that wants to be another one,
// or to get something from the hub; a requester of certificates; users of the hub
// who want to be somebody else, or to get where they may not, by how they write a
// request, through a fleet view, by a pass or around a policy; users and agents that go on after
// what they live on was taken away; and the addon's own service accounts. They have
// real credentials: those of the lab, and what the lab's CAs sign for them.
//
// A threat is here if it meets more than one process, or a kube-apiserver. The
// packages' own tests have the rest; SECURITY.md's table names them.
//
// The tests are functions of a normal package, and test/e2e calls Run from its
// own test binary: so one lab serves both, and no process has to hand it to
// another. Run them alone with
//
//	go test ./test/e2e -run TestHostile
//
// Where an attack needs an accomplice (an agent that goes on), it is the same binary.
package hostile
