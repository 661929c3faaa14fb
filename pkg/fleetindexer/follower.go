package fleetindexer

import (
	"context"
	"errors"
	"io"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
)

const (
	// firstPause and longestPause bound the pauses between streams.
	firstPause, longestPause = time.Second, time.Minute
	// lasting is how long a stream lasts after which the next one follows without a long pause.
	lasting = time.Minute
	// openTimeout bounds the time until an agent has begun to answer, which it does before it lists anything.
	openTimeout = 20 * time.Second
)

// follower keeps one stream to the agent of a cluster.
type follower struct {
	*shared
	progress
	cluster fleetindex.Cluster
	// writer is nil until the cluster is claimed, and after an error of the store.
	writer *fleetindex.Writer
	// differ has the namespaces that the agent wants to have the items of, by resource.
	differ differing
}

// run follows the cluster until ctx is done.
func (f *follower) run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("cluster", f.cluster.Name)
	pause := dial.Jitter(firstPause, longestPause)
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := f.once(ctx)
		if ctx.Err() != nil {
			return
		}
		reason := reasonOf(err)
		f.metrics.ended.WithLabelValues(reason).Inc()
		switch reason {
		case endedStore:
			f.failed(ctx, err, "Failed to keep rows of a cluster; it will be claimed again", "cluster", f.cluster.Name)
			f.writer = nil
		case endedTaken:
			f.writer = nil
		}
		logger.V(1).Info("A stream of rows has ended", "reason", reason, "err", err)
		if failures++; time.Since(began) >= lasting {
			failures = 1
		}
		if f.pause(ctx, pause(failures), reason == endedAway) {
			failures = 0
		}
	}
}

// pause waits, and reports whether the agent came back meanwhile, which ends the pause of a cluster that is away. No other pause
// ends early: an agent that answers questions and breaks streams would have a new one for each question.
func (f *follower) pause(ctx context.Context, pause time.Duration, isAway bool) (isBack bool) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	back := make(chan struct{})
	if isAway {
		f.waiting.Store(&back)
		defer f.waiting.Store(nil)
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-back:
		return true
	}
	return false
}

// once follows the cluster as long as one stream lasts.
func (f *follower) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, body, err := f.open(ctx, cancel)
	if err != nil {
		return err
	}
	defer body.Close()
	return s.read(ctx, body, cancel)
}

// open opens a stream. cancel ends an attempt that takes too long.
func (f *follower) open(ctx context.Context, cancel func()) (*stream, io.ReadCloser, error) {
	if err := f.opening.acquire(ctx); err != nil {
		return nil, nil, err
	}
	defer f.opening.release()
	limit := time.AfterFunc(openTimeout, cancel)
	defer limit.Stop()
	if f.writer == nil {
		writer, err := f.store.Claim(ctx, f.cluster)
		if err != nil {
			return nil, nil, storeError{err}
		}
		f.writer = writer
	}
	s := newStream(f.shared, f.writer, &f.progress, f.differ)
	request, err := s.request(ctx)
	if err != nil {
		return nil, nil, err
	}
	f.count(f.writer)
	body, err := f.agents.open(ctx, f.cluster.Name, request)
	if err == nil {
		f.opened.Store(time.Now().UnixNano())
	}
	f.refused.Store(refuses(err))
	if f.refused.Load() {
		err = errors.Join(err, f.drop(ctx))
	}
	return s, body, err
}

// drop deletes all rows of a cluster that is not to be indexed, by its owner's will or its agent's configuration.
func (f *follower) drop(ctx context.Context) error {
	for r := range f.writer.Feeds() {
		if err := f.writer.Drop(ctx, r); err != nil {
			return storeError{err}
		}
	}
	f.count(f.writer)
	return nil
}

// reasonOf returns why a stream has ended, for the metric.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, fleetindex.ErrFenced):
		return endedTaken
	case errors.As(err, new(storeError)):
		return endedStore
	case errors.Is(err, errAgain):
		return endedAgain
	case errors.As(err, new(*refusedError)):
		return endedRefused
	case isAway(err):
		return endedAway
	}
	return endedBroken
}
