package recording

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// openTimeout is how long a user waits for a file.
	openTimeout = 5 * time.Second
	// stalledAfter is how long the volume may take for one write if recordings fail closed.
	stalledAfter = 10 * time.Second
)

// Metrics count for all recordings.
type Metrics struct {
	// Open are recordings that are being written, Stored the bytes of all files.
	Open, Stored prometheus.Gauge
	// Written and Lost are bytes.
	Written, Lost prometheus.Counter
	// Removed are files, by the reason age or size.
	Removed *prometheus.CounterVec
}

// place is where recordings go.
type place interface {
	// create begins a recording at a path.
	create(path string, of owner) (sink, error)
	// run looks after what is there, at most until ctx is done.
	run(ctx context.Context)
}

// sink is one recording at its place. One goroutine calls the methods, but for check.
type sink interface {
	// Write writes all of p unless it returns an error.
	Write(p []byte) (int, error)
	// check returns an error if what was written is not there any more.
	check() error
	// discard is for a session that has not begun. It reports whether it is over with that;
	// otherwise it is to be ended like others.
	discard() bool
	// close ends it. The error means that it may not be there as it was written.
	close() error
}

// owner is whose a recording is: a user of the hub, or somebody whom only the cluster knows.
type owner struct{ user, cluster string }

func (s *Session) owner() owner {
	if s.User != "" {
		return owner{user: s.User}
	}
	return owner{cluster: s.Cluster}
}

// Why recordings fail, besides errors of the volume and of the Service.
var (
	errFull    = errors.New("the volume of recordings is full, and all recordings on it are of sessions that are open")
	ErrTooLong = errors.New("the recording has reached the limit of its size")
	errStalled = errors.New("what is recorded is not taken in time")
	errGone    = errors.New("the file of the recording is not there any more")
)
