package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// program is what the lab runs: a binary, its arguments and where its output
// goes.
type program struct {
	name string // also of its log
	path string
	args []string
	env  []string // nil for the lab's own environment
	dir  string
	log  string
	// stopTimeout is how long it has between SIGTERM and SIGKILL.
	stopTimeout time.Duration
}

// keepRunning runs a program until ctx is done, again whenever it ends, like a
// kubelet would. It returns when the last process is gone.
func (p program) keepRunning(ctx context.Context) {
	pause := 200 * time.Millisecond
	for {
		began := time.Now()
		err := p.once(ctx)
		if ctx.Err() != nil {
			return
		}
		p.note(fmt.Sprintf("ended after %s: %v; starting it again", time.Since(began).Round(time.Millisecond), err))
		if time.Since(began) > 30*time.Second {
			pause = 200 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// once runs the program until it ends by itself or ctx is done.
func (p program) once(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(p.log), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env, cmd.Dir = p.env, p.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = p.stopTimeout
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = 5 * time.Second
	}
	return cmd.Run()
}

// note puts a line of the lab's own into the program's log.
func (p program) note(text string) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer log.Close()
	fmt.Fprintf(log, "lab: %s %s %s\n", time.Now().Format(time.TimeOnly), p.name, text)
}

// group is a set of programs that are started one by one and stopped together.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newGroup() *group {
	ctx, cancel := context.WithCancel(context.Background())
	return &group{ctx: ctx, cancel: cancel}
}

func (g *group) start(p program) {
	g.wg.Go(func() { p.keepRunning(g.ctx) })
}

func (g *group) do(f func(ctx context.Context)) {
	g.wg.Go(func() { f(g.ctx) })
}

func (g *group) stop() {
	g.cancel()
	g.wg.Wait()
}

// poll calls ready until it gives no error, and gives its last error when ctx
// is done.
func poll(ctx context.Context, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
