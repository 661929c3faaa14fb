// Package filewatch reads files again and again, for configuration that may change
// while a process runs: certificates, and ConfigMaps that are mounted as folders.
//
// It polls. A kubelet projects a changed volume by swapping a symbolic link of a
// folder above the files, about a minute after the change, and inotify on the files
// sees nothing of that. Where the files are known, it looks at them and reads them if
// there is something new (marks.go), since a process does so every few seconds of its life.
package filewatch

import (
	"context"
	"time"
)

// Loop loads something from files. Files that Load cannot read change nothing: the last
// good state stays in use, which is Load's to keep.
type Loop struct {
	// Interval is the pause between two loads.
	Interval time.Duration
	// Load reads the files and reports whether they brought something else.
	Load func() (changed bool, err error)
	// Paths are all files that Load reads, which may be absent: it is called when
	// one of them may have changed, after an error, and each minute. Without any it
	// is called at each interval.
	Paths []string
	// Changed is called after a load that brought something else. It may be nil.
	Changed func()
	// Failed is called once for each new error, and not again while it stays the same.
	Failed func(error)
}

// Run loads at once and at each interval, until ctx is done. It returns nil, for
// an errgroup.
func (l Loop) Run(ctx context.Context) error {
	ticker := time.NewTicker(l.Interval)
	defer ticker.Stop()
	var known marks
	for last := ""; ; {
		if same := known.look(l.Paths); !same || last != "" {
			last = l.load(last)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// load returns the error that was told last.
func (l Loop) load(last string) string {
	changed, err := l.Load()
	switch {
	case err == nil:
		last = ""
	case err.Error() != last:
		last = err.Error()
		l.Failed(err)
	}
	if changed && l.Changed != nil {
		l.Changed()
	}
	return last
}
