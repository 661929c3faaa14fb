// Package carriertest checks histories: that what was written to one end of a
// tunnelled connection is what is read at the other end, all of it, in order,
// and nothing of anybody else. Tests and load tests share it.
//
// Files: history.go has the check, mutable.go connections that go silent, and
// swallow_linux.go sockets that do.
package carriertest
