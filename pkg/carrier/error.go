package carrier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// Code says why a connection was refused, or why it ended abnormally.
type Code uint64

// Codes of REFUSE, then codes of RESET. A code that this version does not know
// is kept as it is.
const (
	NoSuchCluster Code = 1  // the proxy server knows of no such cluster
	NoAgent       Code = 2  // no agent of the cluster is connected
	Denied        Code = 3  // the destination policy does not allow it
	Unreachable   Code = 4  // the target cannot be reached
	TimedOut      Code = 5  // no answer in time
	Overloaded    Code = 6  // too many connections or pending dials
	Draining      Code = 7  // about to stop: ask another one
	Refused       Code = 8  // the target itself refused the connection
	CutOff        Code = 16 // a transport or the target's connection broke
	Canceled      Code = 17 // the side that sent OPEN gave up
	Protocol      Code = 18 // the peer broke the protocol
	Closed        Code = 19 // the peer closed the connection while we still sent
)

var codeNames = map[Code]string{
	NoSuchCluster: "no such cluster", NoAgent: "no agent", Denied: "denied by policy",
	Unreachable: "unreachable", TimedOut: "timed out", Overloaded: "overloaded",
	Draining: "draining", Refused: "refused by target", CutOff: "cut off",
	Canceled: "canceled", Protocol: "protocol violation", Closed: "closed by peer",
}

func (c Code) String() string {
	if s := codeNames[c]; s != "" {
		return s
	}
	return fmt.Sprintf("code %d", uint64(c))
}

// Error is a REFUSE, a RESET, or what this side noticed itself.
type Error struct {
	Code    Code
	Message string
	Reset   bool  // it came with a RESET
	Err     error // the cause on this side, if there is one
}

var _ net.Error = &Error{}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.String()
	}
	return e.Code.String() + ": " + e.Message
}

// Unwrap returns the cause. It is never io.EOF: what was cut off did not end.
func (e *Error) Unwrap() error { return e.Err }

// Timeout is part of net.Error.
func (e *Error) Timeout() bool { return e.Code == TimedOut }

// Temporary is part of net.Error.
func (e *Error) Temporary() bool {
	return e.Code == NoAgent || e.Code == TimedOut || e.Code == Overloaded || e.Code == Draining
}

// CodeOf returns the code of an Error, however deeply wrapped, and 0 otherwise.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func cutOff(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &Error{Code: CutOff, Message: err.Error(), Err: err}
}

func violation(format string, args ...any) *Error {
	return &Error{Code: Protocol, Message: fmt.Sprintf(format, args...)}
}

// ContextError returns the error of an Open whose context has ended.
func ContextError(ctx context.Context) *Error {
	e := &Error{Code: Canceled, Message: "the caller gave up", Err: context.Cause(ctx)}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code, e.Message = TimedOut, "no answer in time"
	}
	return e
}

// isTimeout reports whether a deadline passed. A transport whose peer is gone
// fails with a timeout of the kernel's, which is none.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

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
