package index

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// maxEvent bounds an event of a watch.
const maxEvent = 4 << 20

// errStream is the error of a stream that has ended.
var errStream = errors.New("the stream has ended")

// follower sends the changes of one resource.
type follower struct {
	client *client
	known  feed.Known
	send   func(*feed.Message) error
	endpoint
	// version is that of the last event; empty until all objects have been listed.
	version string
	refresh *refresher
	// mu orders rows of the watch and of refresh: an older state of an object must not follow a newer one.
	mu sync.Mutex
}

func newFollower(c *client, known feed.Known, send func(*feed.Message) error) *follower {
	return &follower{client: c, known: known, send: send, refresh: newRefresher()}
}

// run follows the resource until the context ends or the stream does. failing is told whether the follower
// has to try again.
func (f *follower) run(ctx context.Context, failing func(by int)) error {
	pause := dial.Jitter(firstPause, longestPause)
	for failures := 0; ; {
		before := f.version
		err := f.once(ctx)
		var refused *refusal
		switch isRefused := errors.As(err, &refused); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errStream):
			return err
		case isRefused && f.version != "" && (refused.code == http.StatusGone || refused.code == http.StatusNotFound):
			return f.again(nil)
		case errors.Is(err, io.EOF) && f.version != before:
			failures = 0 // a watch ends now and then
			continue
		case isRefused && refused.code < http.StatusInternalServerError && refused.code != http.StatusTooManyRequests && f.version == "":
			m := &feed.Message{Resource: f.known.Resource, Absent: refused.code == http.StatusNotFound, Incomplete: reasonOf(refused)}
			if err := f.send(m); err != nil {
				return err
			}
			failures++
			if err := wait(ctx, pause(failures)); err != nil {
				return err
			}
			continue
		}
		failures++
		failing(1)
		err = wait(ctx, pause(failures))
		failing(-1)
		if err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// once lists the resource, unless it was, and watches it until an error, which is never nil.
func (f *follower) once(ctx context.Context) (err error) {
	if f.version == "" {
		if f.endpoint, err = f.client.discover(ctx, f.known.Resource); err != nil {
			return err
		}
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	return f.watch(ctx)
}

// again ends the stream.
func (f *follower) again(differ []string) error {
	return errors.Join(errStream, f.send(&feed.Message{Resource: f.known.Resource, Again: true, Differ: differ}))
}

// list sends what differs from what the index has. It begins with the definition, so that what was
// incomplete before is not any more.
func (f *follower) list(ctx context.Context) error {
	c := newComparison(f.known)
	isFirst, version, incomplete := true, "", ""
	for token := ""; isFirst || token != ""; {
		page, err := f.client.list(ctx, &f.endpoint, token)
		if err != nil {
			return err
		}
		if isFirst {
			f.Columns = columns(page.Columns)
			if d := f.known.Definition; d == nil || !slices.Equal(d.Columns, f.Columns) || d.Version != f.Version || d.Kind != f.Kind {
				c = newComparison(feed.Known{}) // the index drops what it has
			}
			if err := f.Check(); err != nil {
				return fmt.Errorf("the columns of the resource cannot be indexed: %w", err)
			}
			definition := f.Definition
			if err := f.send(&feed.Message{Resource: f.known.Resource, Definition: &definition}); err != nil {
				return err
			}
			// Later pages may be newer: a watch from the first one's version repeats their changes.
			isFirst, version = false, page.Metadata.ResourceVersion
		}
		rows, refused, reason := page.rows(&f.Definition)
		if refused > 0 && incomplete == "" {
			incomplete = reason
		}
		f.refresh.add(rows)
		// Cells with relative times are older in the index, whatever its version.
		if err := f.sendRows(slices.DeleteFunc(rows, func(r row) bool { return !c.isNew(&r.Row) && r.due == 0 })); err != nil {
			return err
		}
		token = page.Metadata.Continue
	}
	for gone := range slices.Chunk(c.gone(), feed.MaxRows) {
		if err := f.send(&feed.Message{Resource: f.known.Resource, GoneUIDs: gone}); err != nil {
			return err
		}
	}
	if differ := c.differ(); len(differ) > 0 {
		return f.again(differ)
	}
	f.version = version
	return f.send(&feed.Message{Resource: f.known.Resource, Version: version, Synced: true, Incomplete: incomplete})
}

// messageBytes is how many bytes of texts a message has: JSON writes some characters with six.
const messageBytes = 128 << 10

func (f *follower) sendRows(rows []row) error {
	m, size := &feed.Message{Resource: f.known.Resource}, 0
	for i := range rows {
		m.Put = append(m.Put, rows[i].Row)
		if size += rows[i].Size(); size < messageBytes && i < len(rows)-1 {
			continue
		}
		if err := f.send(m); err != nil {
			return err
		}
		m, size = &feed.Message{Resource: f.known.Resource}, 0
	}
	return nil
}

// event is one of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch sends what changes after f.version.
func (f *follower) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := f.client.watch(ctx, &f.endpoint, f.version)
	if err != nil {
		return err
	}
	defer body.Close()
	var refreshing sync.WaitGroup
	defer refreshing.Wait()
	defer cancel()
	refreshing.Go(func() { f.refreshRows(ctx) })
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		if err := f.handle(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading changes of %s: %w", f.known.Resource, err)
	}
	return io.EOF
}

// refreshRows sends rows again until the context ends. Rows that cannot be read are left as they are: the
// watch says what became of them.
func (f *follower) refreshRows(ctx context.Context) {
	tick := time.NewTicker(refreshPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		key, ok := f.refresh.next()
		if !ok {
			continue
		}
		t, err := f.client.object(ctx, &f.endpoint, key)
		if err != nil || ctx.Err() != nil {
			continue
		}
		if f.answer(t) != nil {
			return
		}
	}
}

// answer sends a row that was asked for, unless the watch has said something of it since.
func (f *follower) answer(t *table) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.refresh.isAsked() {
		return nil
	}
	rows, _, _ := t.rows(&f.Definition)
	f.refresh.add(rows)
	return f.sendRows(rows)
}

// handle sends the change of one event.
func (f *follower) handle(line []byte) error {
	if len(line) > maxEvent {
		return errors.New("an event is too long")
	}
	var e event
	if err := json.NewDecoder(bytes.NewReader(line)).Decode(&e); err != nil {
		return fmt.Errorf("parsing an event: %w", err)
	}
	if e.Type == "ERROR" {
		var s struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		_ = json.NewDecoder(bytes.NewReader(e.Object)).Decode(&s) // without a code it is an error like others
		return &refusal{s.Code, s.Message}
	}
	var t table
	if err := json.NewDecoder(bytes.NewReader(e.Object)).Decode(&t); err != nil {
		return fmt.Errorf("parsing a row: %w", err)
	}
	if len(t.Columns) > 0 && !slices.Equal(columns(t.Columns), f.Columns) {
		return f.again(nil) // the definition of a custom resource has changed
	}
	m := &feed.Message{Resource: f.known.Resource, Version: t.Metadata.ResourceVersion}
	if m.Version == "" && len(t.Rows) > 0 {
		m.Version = t.Rows[0].Object.Metadata.ResourceVersion
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Type {
	case "DELETED":
		for _, r := range t.Rows {
			key := feed.Key{Namespace: r.Object.Metadata.Namespace, Name: r.Object.Metadata.Name}
			f.refresh.add([]row{{Row: feed.Row{Key: key}}})
			m.Gone = append(m.Gone, key)
		}
	case "ADDED", "MODIFIED":
		rows, _, reason := t.rows(&f.Definition)
		f.refresh.add(rows)
		for _, r := range rows {
			m.Put = append(m.Put, r.Row)
		}
		m.Incomplete = reason
	}
	f.version = m.Version
	return f.send(m)
}

// reasonOf returns why there are no rows.
func reasonOf(r *refusal) string { return feed.CutText(r.Error()) }

// Pauses between attempts.
const firstPause, longestPause = time.Second, time.Minute
