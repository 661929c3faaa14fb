package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
)

// Code is the kind of an Error.
type Code string

// Faults of a dial or a connection.
const (
	// NoSuchCluster: the proxy server knows that there is no such cluster.
	NoSuchCluster Code = "NoSuchCluster"
	// NoAgent: no agent of that cluster is connected to a proxy server, which may
	// not know whether there is such a cluster.
	NoAgent Code = "NoAgent"
	// Denied: the agent's destination policy does not allow the address.
	Denied Code = "Denied"
	// Unreachable: the agent could not connect to the target.
	Unreachable Code = "Unreachable"
	// TimedOut: no answer within the dial timeout or the context's deadline.
	TimedOut Code = "TimedOut"
	// Canceled: the caller's context was canceled.
	Canceled Code = "Canceled"
	// Overloaded: the agent or the proxy server has too many connections.
	Overloaded Code = "Overloaded"
	// Draining: the proxy server or the agent is about to stop.
	Draining Code = "Draining"
	// NoProxyServer: the proxy server cannot be reached, or it and the Dialer
	// do not accept each other's certificates.
	NoProxyServer Code = "NoProxyServer"
	// Lost: the connection ended abnormally.
	Lost Code = "Lost"
	// Closed: the Dialer was closed.
	Closed Code = "Closed"
	// Invalid: the address or the network cannot be dialed.
	Invalid Code = "Invalid"
)

// Error is the error of every failed dial and of every connection that broke.
type Error struct {
	Code Code
	// Cluster is the host of Address, which names the cluster unless it is a
	// host name of the agent's own handler.
	Cluster string
	// Address is what was dialed.
	Address string
	// Message says what happened, in the words of who noticed.
	Message string
	// Err is the cause, if there is one: a context's error, for example.
	Err error
}

var _ net.Error = &Error{}

func (e *Error) Error() string {
	return fmt.Sprintf("dialing %q through the tunnel: %s: %s", e.Address, e.Code, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout is part of net.Error.
func (e *Error) Timeout() bool { return e.Code == TimedOut }

// Temporary is part of net.Error. It reports whether another attempt, later,
// may succeed without any change.
func (e *Error) Temporary() bool {
	switch e.Code {
	case NoAgent, TimedOut, Overloaded, Draining, NoProxyServer, Lost:
		return true
	}
	return false
}

// CodeOf returns the code of an error of this package, however deeply wrapped,
// and "" for any other error.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// fail makes an Error for address. A cause that is a context's error decides
// about the code.
func fail(code Code, address, message string, cause error) *Error {
	switch {
	case errors.Is(cause, context.Canceled):
		code = Canceled
	case errors.Is(cause, context.DeadlineExceeded), errors.Is(cause, os.ErrDeadlineExceeded):
		code = TimedOut
	}
	cluster, _, err := net.SplitHostPort(address)
	if err != nil {
		cluster = address
	}
	return &Error{Code: code, Cluster: cluster, Address: address, Message: message, Err: cause}
}
