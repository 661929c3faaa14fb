package program

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// recorder is a test that may fail without failing this one.
type recorder struct {
	testing.TB
	failed   bool
	said     []string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Failed() bool     { return r.failed }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Logf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = true
	r.Logf(format, args...)
	runtime.Goexit()
}

// do runs what may call Fatalf, and the cleanups after it.
func (r *recorder) do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, cleanup := range r.cleanups {
				cleanup()
			}
		}()
		f()
	}()
	<-done
}

func TestAwaitEndsWithTheProgram(t *testing.T) {
	r := &recorder{TB: t}
	r.do(func() {
		p := Start(r, "short", exec.Command("sh", "-c", "echo port is taken; exit 3"))
		p.Await(r, "an answer", func() error { return errors.New("connection refused") })
	})
	said := strings.Join(r.said, "\n")
	for _, want := range []string{"short has ended: exit status 3", "connection refused", "port is taken"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in what the failed test says:\n%s", want, said)
		}
	}
}

func TestAwaitReturnsWhenReady(t *testing.T) {
	r := &recorder{TB: t}
	asked := 0
	r.do(func() {
		p := Start(r, "long", exec.Command("sleep", "600"))
		p.Await(r, "the third time", func() error {
			if asked++; asked < 3 {
				return errors.New("not yet")
			}
			return nil
		})
	})
	if r.failed || asked != 3 || len(r.said) > 0 {
		t.Errorf("failed %v, asked %d times, said %q, want a success after three, and silence", r.failed, asked, r.said)
	}
}
