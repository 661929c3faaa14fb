package carrier

import (
	"context"
	"errors"
	"testing"
)

func TestAnswered(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{&Error{Code: Denied}, true},
		{&Error{Code: NoAgent}, true},
		{&Error{Code: NoAgent, Reset: true}, false},
		{&Error{Code: TimedOut, Message: "dial tcp: i/o timeout"}, true},
		{&Error{Code: TimedOut, Err: context.DeadlineExceeded}, false},
		{&Error{Code: Canceled, Err: context.Canceled}, false},
		{&Error{Code: Overloaded}, false},
		{errDraining, false},
		{errors.New("other"), false},
	} {
		if got := Answered(test.err); got != test.want {
			t.Errorf("Answered(%v) = %t, want %t", test.err, got, test.want)
		}
	}
}
