package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// way is how clients go, which says what a fault may do to them.
type way string

const (
	// straight does not go through the addon: it shows what the cluster itself does.
	straight way = "straight"
	request  way = "request"
	stream   way = "stream"
)

// client is one of those that are at work all the time.
type client struct {
	name string
	// cluster is empty for what goes to all of them.
	cluster string
	way     way

	mu       sync.Mutex
	worked   int
	failures []failure
	gaps     []failure
	told     struct{ failures, gaps int } // by judgeNew
}

// failure is a request that failed, or a stream that broke. A stream's began is its end: how
// long it was well says nothing.
type failure struct {
	began, ended time.Time
	what         string
}

func (c *client) note(began, ended time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.worked++
		return
	}
	c.failures = append(c.failures, failure{began, ended, fmt.Sprintf("%.300s", strings.ReplaceAll(err.Error(), "\n", " "))})
}

// missed notes that a watch lacks events.
func (c *client) missed(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaps = append(c.gaps, failure{time.Now(), time.Now(), what})
}

// requestTimeout is how long a client waits for an answer.
const requestTimeout = 30 * time.Second

// repeat makes requests until ctx is done.
func (c *client) repeat(ctx context.Context, every time.Duration, once func(context.Context) error) {
	for pause(ctx, every) {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		err := once(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		c.note(began, time.Now(), err)
	}
}

// pause waits, and reports whether to go on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// window is the time in which a fault may be noticed, and by whom.
type window struct {
	fault string
	// cluster is the one whose clients may notice it; empty for all.
	cluster      string
	ways         []way
	began, ended time.Time
	// gaps says that a view's watch may lack events: a kube-apiserver that was restarted answers
	// 410 to where the watch was, and the view sends the difference of what there is now, or ends
	// the watch with that 410. The client of one cluster gets it itself. Both begin anew.
	gaps bool
}

func (w window) excuses(c *client, f failure) bool {
	return slices.Contains(w.ways, c.way) && (w.cluster == "" || c.cluster == "" || w.cluster == c.cluster) && f.ended.After(w.began) && f.began.Before(w.ended)
}

// verdict is how a client fared.
type verdict struct {
	worked, excused int
	// unexcused are failures outside of every window.
	unexcused []string
}

// judge compares what a client noticed with what it may have noticed.
func (c *client) judge(windows []window) (v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.worked = c.worked
	for _, f := range c.failures {
		if slices.ContainsFunc(windows, func(w window) bool { return w.excuses(c, f) }) {
			v.excused++
			continue
		}
		v.unexcused = append(v.unexcused, fmt.Sprintf("%s to %s (%s): %s", f.began.Format(clock), f.ended.Format(clock), after(windows, f), f.what))
	}
	for _, f := range c.gaps {
		if slices.ContainsFunc(windows, func(w window) bool { return w.gaps && c.cluster == "" && w.excuses(c, f) }) {
			v.excused++
			continue
		}
		v.unexcused = append(v.unexcused, fmt.Sprintf("%s (%s): %s", f.ended.Format(clock), after(windows, f), f.what))
	}
	if c.worked == 0 {
		v.unexcused = append(v.unexcused, "nothing ever went well")
	}
	return v
}

// judgeNew returns the failures outside of every window that it has not returned before. A failure
// before a fault began cannot be of that fault, so once one is over, the windows
// that there are decide.
func (c *client) judgeNew(windows []window) (unexcused []string) {
	c.mu.Lock()
	news := &client{cluster: c.cluster, way: c.way, worked: 1, failures: c.failures[c.told.failures:], gaps: c.gaps[c.told.gaps:]}
	c.told.failures, c.told.gaps = len(c.failures), len(c.gaps)
	c.mu.Unlock()
	return news.judge(windows).unexcused
}

const clock = "15:04:05.0"

// after says which fault was the last before a failure.
func after(windows []window, f failure) string {
	last := "before any fault"
	for _, w := range windows {
		if w.began.Before(f.ended) {
			last = fmt.Sprintf("%s after %s", f.ended.Sub(w.began).Round(100*time.Millisecond), w.fault)
		}
	}
	return last
}
