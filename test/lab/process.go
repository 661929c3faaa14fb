package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	testprogram "open-cluster-management.io/cluster-proxy/test/testkit/program"

	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
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

// supervised is a program that is started again whenever it ends.
type supervised struct {
	program
	// wanted says whether to start it again; nil says so always.
	wanted func(ctx context.Context) bool
	ends   atomic.Int32
}

// maxEnds is how often a program may end before nothing waits for it any more.
const maxEnds = 5

// await polls ready until it returns no error, and gives up when the program
// has ended too often. Its error has the end of the program's log.
func (r *supervised) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := poll(ctx, func(ctx context.Context) error {
		err := ready(ctx)
		if ends := r.ends.Load(); err != nil && ends >= maxEnds {
			cancel(fmt.Errorf("%s has ended %d times", r.name, ends))
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("%w: %w; its log ends with:\n%s", context.Cause(ctx), err, testprogram.Tail(r.log))
	}
	return err
}

// keepRunning runs a program until ctx is done or it is not wanted any more, again whenever
// it ends, like a kubelet would. It returns when the last process is gone.
func (r *supervised) keepRunning(ctx context.Context) {
	pause := 200 * time.Millisecond
	for {
		began := time.Now()
		err := r.once(ctx)
		r.ends.Add(1)
		if ctx.Err() != nil {
			return
		}
		r.note(fmt.Sprintf("ended after %s: %v; starting it again", time.Since(began).Round(time.Millisecond), err))
		if time.Since(began) > 30*time.Second {
			pause = 200 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
		if r.wanted != nil && !r.wanted(ctx) {
			return
		}
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

func (g *group) start(p program) *supervised {
	r := &supervised{program: p}
	g.wg.Go(func() { r.keepRunning(g.ctx) })
	return r
}

func (g *group) do(f func(ctx context.Context)) {
	g.wg.Go(func() { f(g.ctx) })
}

func (g *group) stop() {
	g.cancel()
	g.wg.Wait()
}

// poll calls ready until it returns no error, and returns its last error when ctx
// is done.
func poll(ctx context.Context, ready func(context.Context) error) error {
	err := wait.Poll{Every: 100 * time.Millisecond}.Try(ctx, func() error { return ready(ctx) })
	if err != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return err
}
