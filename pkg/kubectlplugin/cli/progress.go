package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progressAfter is how long a command may take before it says what it does.
const progressAfter = time.Second

// Progress says on a terminal what a command does, if that takes long. Its zero value says
// nothing.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	timer *time.Timer
	what  string
	late  bool
}

// StartProgress begins to watch a command, which must call done.
func (p *Factory) StartProgress() *Progress {
	watched := &Progress{}
	if p.interactive {
		watched.out = p.Err
		watched.timer = time.AfterFunc(progressAfter, func() {
			watched.mu.Lock()
			defer watched.mu.Unlock()
			watched.late = true
			watched.say()
		})
	}
	return watched
}

// Doing notes what the command does now.
func (p *Progress) Doing(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what = what
	if p.late {
		p.say()
	}
}

// say needs the lock.
func (p *Progress) say() {
	if p.what != "" && p.out != nil {
		fmt.Fprintln(p.out, OneLine(p.what), "…")
	}
}

// Done ends it: nothing is said any more.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = nil
	if p.timer != nil {
		p.timer.Stop()
	}
}
