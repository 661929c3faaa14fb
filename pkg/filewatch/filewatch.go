// Package filewatch reads files again and again, for configuration that may change
// while a process runs: certificates, and ConfigMaps that are mounted as folders.
//
// It polls. A kubelet projects a changed volume by swapping a symbolic link of a
// folder above the files, about a minute after the change, and inotify on the files
// sees nothing of that. Reading a few KiB costs some ten microseconds.
package filewatch

import (
	"context"
	"time"
)

// Loop loads something from files. What Load cannot read changes nothing: the last
// good state stays in use, which is Load's to keep.
type Loop struct {
	// Interval is the pause between two loads.
	Interval time.Duration
	// Load reads the files and reports whether they brought something else.
	Load func() (changed bool, err error)
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
	for last := ""; ; {
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
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
