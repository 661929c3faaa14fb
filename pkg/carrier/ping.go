package carrier

import "errors"

// NetworkPing is the network of an OPEN that asks for an answer and nothing
// else. Every acceptor refuses it: this version at once, older ones because
// their policy knows no such network.
const NetworkPing = "ping"

// errPinged is the answer to a ping.
var errPinged = &Error{Code: Denied, Message: "alive"}

// Answered reports whether the result of an Open came from the peer: an ACCEPT
// or a REFUSE. It reports false for codes that this side uses as well, such as
// Draining.
func Answered(err error) bool {
	if err == nil {
		return true
	}
	var e *Error
	if !errors.As(err, &e) || e.Reset {
		return false
	}
	switch e.Code {
	case NoSuchCluster, NoAgent, Denied, Unreachable, Refused:
		return true
	case TimedOut:
		return e.Err == nil
	}
	return false
}
