package kubectlplugin

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progressAfter is how long a command may take before it says what it does.
const progressAfter = time.Second

// progress says on a terminal what a command does, if that takes long. Its zero value says
// nothing.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	timer *time.Timer
	what  string
	late  bool
}

// progress begins to watch a command, which must call done.
func (p *plugin) progress() *progress {
	watched := &progress{}
	if p.interactive {
		watched.out = p.err
		watched.timer = time.AfterFunc(progressAfter, func() {
			watched.mu.Lock()
			defer watched.mu.Unlock()
			watched.late = true
			watched.say()
		})
	}
	return watched
}

// doing notes what the command does now.
func (p *progress) doing(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what = what
	if p.late {
		p.say()
	}
}

// say needs the lock.
func (p *progress) say() {
	if p.what != "" && p.out != nil {
		fmt.Fprintln(p.out, oneLine(p.what), "…")
	}
}

// done ends it: nothing is said any more.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = nil
	if p.timer != nil {
		p.timer.Stop()
	}
}

// isTerminal reports whether somebody looks at what is written to w.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
