package flags

import (
	"cmp"
	"fmt"
	"net"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Errors collects what is wrong with flags. Its zero value is empty.
type Errors []error

// Add adds an error, if there is one, that names its flag already.
func (e *Errors) Add(err error) {
	if err != nil {
		*e = append(*e, err)
	}
}

// Refuse adds that a flag has a value, and what is wrong with it: a phrase such as
// "it must be Always or Never".
func (e *Errors) Refuse(flag string, value any, format string, args ...any) {
	problem := fmt.Sprintf(format, args...)
	switch text, ok := value.(string); {
	case ok && text == "":
		e.Add(fmt.Errorf("--%s is empty: %s", flag, problem))
	case ok:
		e.Add(fmt.Errorf("--%s is %q: %s", flag, text, problem))
	default:
		e.Add(fmt.Errorf("--%s is %v: %s", flag, value, problem))
	}
}

// Invalid refuses a value that does not parse, if err says so.
func (e *Errors) Invalid(flag string, value any, err error) {
	if err != nil {
		e.Refuse(flag, value, "%s", err)
	}
}

// Required refuses an empty value; what says what the flag is for.
func (e *Errors) Required(flag, value, what string) {
	if value == "" {
		e.Refuse(flag, value, "it must be %s", what)
	}
}

// Port refuses what is not a TCP port; 0 takes a free one.
func (e *Errors) Port(flag string, port int) {
	if port < 0 || port > 65535 {
		e.Refuse(flag, port, "it must be a port from 1 to 65535, or 0 for a free one")
	}
}

// HostPort refuses what is not of the form host:port.
func (e *Errors) HostPort(flag, address string) {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		e.Refuse(flag, address, "it must be of the form host:port")
	}
}

// Err returns an error of one line, or nil.
func (e Errors) Err() error {
	if len(e) == 1 {
		return e[0]
	}
	return utilerrors.NewAggregate(e)
}

// Check is a value that has a least one.
type Check[T cmp.Ordered] struct {
	Flag  string
	Value T
	Least T
}

// AtLeast refuses values below their least one.
func AtLeast[T cmp.Ordered](e *Errors, checks ...Check[T]) {
	for _, c := range checks {
		if c.Value < c.Least {
			e.Refuse(c.Flag, c.Value, "it must be at least %v", c.Least)
		}
	}
}
