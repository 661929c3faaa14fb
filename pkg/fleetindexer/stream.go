package fleetindexer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

const (
	// maxSilence is how long a stream goes on without a message. An agent whose kube-apiserver fails sends
	// none, and a new stream would cost it all lists; a connection that is dead is found by its pings.
	maxSilence = 3 * time.Minute
	// itemsOf is how many rows a feed has at most whose items are sent at once.
	itemsOf = 2000
	// definitionsOf is how many definitions of each resource a stream has. An agent repeats one if a list fails; each
	// that is new deletes rows, and stays in the store.
	definitionsOf = 4
	// maxDiffer is how many namespaces an agent may name at once, and maxNamespace how long their names are.
	maxDiffer, maxNamespace = 2000, 63
	// bytesPerSecond and messagesPerSecond bound what is taken of one cluster, with bursts of as much as comes
	// in a few seconds of a first list. More waits at the agent.
	bytesPerSecond, burstBytes       = 4 << 20, 32 << 20
	messagesPerSecond, burstMessages = 50, 500
)

// errAgain is the error of a stream that the agent ended for a new one.
var errAgain = errors.New("the agent wants to be asked again")

// stream is one stream of one cluster.
type stream struct {
	*shared
	writer   *fleetindex.Writer
	progress *progress
	// pending are resources of which rows may still be missing or old.
	pending map[feed.Resource]bool
	// definitions is how many have come.
	definitions int
	// sent has the namespaces whose items the agent was told, by resource, until its rows are all there, and
	// keys their rows by the hashes of their UIDs, if the agent has named any.
	sent map[feed.Resource][]string
	keys map[feed.Resource]map[uint64]feed.Key
	// differ has the namespaces that the agent wants to have the items of, by resource, until its rows are all there.
	differ differing
}

// differing are namespaces by resource.
type differing map[feed.Resource]map[string]bool

func newStream(s *shared, w *fleetindex.Writer, p *progress, d differing) *stream {
	return &stream{shared: s, writer: w, progress: p, pending: map[feed.Resource]bool{}, sent: map[feed.Resource][]string{},
		keys: map[feed.Resource]map[uint64]feed.Key{}, differ: d}
}

// request returns what the store has, after it dropped what is not wanted any more.
func (s *stream) request(ctx context.Context) (*feed.Request, error) {
	feeds := s.writer.Feeds()
	for r := range feeds {
		if slices.Contains(s.resources, r) {
			continue
		}
		if err := s.writer.Drop(ctx, r); err != nil {
			return nil, storeError{err}
		}
	}
	request := &feed.Request{}
	for _, r := range s.resources {
		s.pending[r] = true
		known := feed.Known{Resource: r}
		if f, ok := feeds[r]; ok && f.Total > 0 {
			known.Definition = &f.Definition
			var err error
			known.Digests, known.Items, err = s.writer.Have(ctx, r, func(namespace string) bool {
				return f.Total <= itemsOf || s.differ[r][namespace]
			})
			if err != nil {
				return nil, storeError{err}
			}
			for namespace := range known.Items {
				s.sent[r] = append(s.sent[r], namespace)
			}
		}
		request.Resources = append(request.Resources, known)
	}
	return request, nil
}

// read applies messages until the stream ends. Each needs a slot only when it has come, so that an agent that is
// slow holds up no other one. cancel ends a stream that is silent.
func (s *stream) read(ctx context.Context, body io.Reader, cancel func()) error {
	silence := time.AfterFunc(maxSilence, cancel)
	defer silence.Stop()
	bytes := rate.NewLimiter(bytesPerSecond, burstBytes)
	messages := rate.NewLimiter(messagesPerSecond, burstMessages)
	reader := feed.NewReader(body)
	for {
		frame, err := reader.Next()
		if err != nil {
			return err
		}
		silence.Reset(maxSilence)
		if err := s.take(ctx, frame); err != nil {
			return err
		}
		if err := messages.Wait(ctx); err != nil {
			return err
		}
		if err := bytes.WaitN(ctx, frame.Size()); err != nil {
			return err
		}
		silence.Reset(maxSilence)
	}
}

// take unpacks and applies a message.
func (s *stream) take(ctx context.Context, frame *feed.Frame) error {
	if err := s.parsing.acquire(ctx); err != nil {
		return err
	}
	defer s.parsing.release()
	m, err := frame.Message()
	s.metrics.bytes.Add(float64(frame.Size()))
	if err != nil {
		return err
	}
	return s.apply(ctx, m)
}

// apply writes what a message says. All of it is about this cluster.
func (s *stream) apply(ctx context.Context, m *feed.Message) error {
	r := m.Resource
	if r == (feed.Resource{}) {
		if len(s.pending) == 0 {
			s.hear()
		}
		return nil
	}
	if !slices.Contains(s.resources, r) {
		return fmt.Errorf("the agent sent %q, which it was not asked for", r)
	}
	if m.Absent {
		if err := s.writer.Drop(ctx, r); err != nil {
			return storeError{err}
		}
		s.progress.absent.Store(r, true)
		s.settle(r)
		return nil
	}
	if m.Definition != nil {
		s.progress.absent.Delete(r)
		if s.definitions++; s.definitions > definitionsOf*len(s.resources) {
			return fmt.Errorf("the agent sent more than %d definitions of each resource", definitionsOf)
		}
		if m.Definition.Resource != r {
			return fmt.Errorf("the agent sent a definition of %q for %q", m.Definition.Resource, r)
		}
		if err := m.Definition.Check(); err != nil {
			return err
		}
		if err := s.writer.Define(ctx, *m.Definition); err != nil {
			return storeError{err}
		}
	}
	if err := s.change(ctx, m); err != nil {
		return err
	}
	if m.Synced || m.Incomplete != "" && m.Definition == nil && len(m.Put) == 0 {
		s.settle(r)
	}
	if m.Again {
		s.differ[r] = map[string]bool{}
		for _, namespace := range m.Differ[:min(len(m.Differ), maxDiffer)] {
			if len(namespace) <= maxNamespace {
				s.differ[r][namespace] = true
			}
		}
		return errAgain
	}
	return nil
}

// change writes the rows of a message.
func (s *stream) change(ctx context.Context, m *feed.Message) error {
	if _, ok := s.writer.Feeds()[m.Resource]; !ok {
		if len(m.Put)+len(m.Gone)+len(m.GoneUIDs) > 0 {
			return fmt.Errorf("the agent sent rows of %q before its definition", m.Resource)
		}
		return nil // there are no rows, and nothing to say of them
	}
	gone, err := s.gone(ctx, m)
	if err != nil {
		return err
	}
	// One call takes the rows of Put and as many that are gone.
	for len(gone) > feed.MaxRows {
		if err := s.write(ctx, fleetindex.Changes{Resource: m.Resource, Gone: gone[:feed.MaxRows]}); err != nil {
			return err
		}
		gone = gone[feed.MaxRows:]
	}
	if len(gone)+len(m.Put) == 0 && m.Version == "" && !m.Synced && m.Incomplete == "" {
		return nil
	}
	return s.write(ctx, fleetindex.Changes{Resource: m.Resource, Gone: gone, Put: m.Put, Version: m.Version, Synced: m.Synced, Incomplete: m.Incomplete})
}

func (s *stream) write(ctx context.Context, c fleetindex.Changes) error {
	applied, err := s.writer.Apply(ctx, c)
	if err != nil {
		return storeError{err}
	}
	s.metrics.changes.WithLabelValues(changePut).Add(float64(applied.Put))
	s.metrics.changes.WithLabelValues(changeGone).Add(float64(applied.Gone))
	s.metrics.changes.WithLabelValues(changeRefused).Add(float64(applied.Refused))
	return nil
}

// gone returns the rows that are there no more. The agent names some by the hashes of their UIDs, which it
// has of the items that it was told.
func (s *stream) gone(ctx context.Context, m *feed.Message) ([]feed.Key, error) {
	gone := m.Gone
	if len(m.GoneUIDs) > 0 && s.keys[m.Resource] == nil {
		keys := map[uint64]feed.Key{}
		for _, namespace := range s.sent[m.Resource] {
			items, err := s.writer.Items(ctx, m.Resource, namespace)
			if err != nil {
				return nil, storeError{err}
			}
			for key, item := range items {
				keys[item.UID] = key
			}
		}
		s.keys[m.Resource] = keys
	}
	for _, uid := range m.GoneUIDs {
		if key, ok := s.keys[m.Resource][uid]; ok {
			gone = append(gone, key)
		}
	}
	return gone, nil
}

// hear notes that all rows are those of the cluster.
func (s *stream) hear() {
	now := time.Now()
	s.progress.heard.Store(now.UnixNano())
	s.progress.count(s.writer)
	s.beats.add(s.writer, now)
}

// settle notes that a resource's rows are there, or will not be. With the last of them, all of the cluster's are: an agent has no
// heartbeat before ten seconds, and its rows would not be shown until then.
func (s *stream) settle(r feed.Resource) {
	if s.pending[r] && len(s.pending) == 1 {
		defer s.hear()
	}
	delete(s.pending, r)
	delete(s.differ, r)
	delete(s.sent, r)
	delete(s.keys, r)
}
