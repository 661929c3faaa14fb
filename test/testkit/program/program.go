// Package program runs processes beside a test: what they say is shown if the
// test fails, and no test waits for one that has ended.
package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// timeout is how long anything may take on a busy machine.
const timeout = 2 * time.Minute

// tailSize is how much of a log a failed test shows.
const tailSize = 16 << 10

// Program is a process that runs until the test ends.
type Program struct {
	// Log is the file with its output.
	Log string

	name  string
	ended chan struct{}
	err   error // of Wait; read it after ended
}

// Start starts cmd, and kills it when the test ends. If the test has failed by
// then, the test's own output has the end of the program's.
func Start(t testing.TB, name string, cmd *exec.Cmd) *Program {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	p := &Program{Log: log.Name(), name: name, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s %q says:\n%s", name, cmd.Args[1:], Tail(p.Log))
		}
	})
	return p
}

// Ended is closed when the process has ended.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// Await calls ready until it returns nil. It fails the test when that takes too
// long, and at once when the program ends.
func (p *Program) Await(t testing.TB, what string, ready func() error) {
	t.Helper()
	err := wait.Poll{Every: 50 * time.Millisecond, For: timeout, Ended: p.ended}.Try(context.Background(), ready)
	if err == nil {
		return
	}
	select {
	case <-p.ended:
		t.Fatalf("waiting for %s: %s has ended: %v; before: %v", what, p.name, p.err, err)
	default:
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// Tail returns the end of a file, or why it cannot be read.
func Tail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	if left := len(content) - tailSize; left > 0 {
		return fmt.Sprintf("(%d bytes before)\n%s", left, content[left:])
	}
	return string(content)
}
