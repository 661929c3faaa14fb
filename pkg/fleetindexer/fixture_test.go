package fleetindexer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

var (
	pods      = feed.Resource{Resource: "pods"}
	nodes     = feed.Resource{Resource: "nodes"}
	podColumn = feed.Definition{Resource: pods, Version: "v1", Kind: "Pod", Namespaced: true, Columns: []feed.Column{{Name: "Name", Type: "string"}}}
)

func pod(name, version string) feed.Row {
	return feed.Row{Key: feed.Key{Namespace: "shop", Name: name}, UID: "uid-" + name, Version: version, Cells: json.RawMessage(`["` + name + `"]`)}
}

// heartbeat says that the agent has sent all that it knows.
var heartbeat = &feed.Message{}

// rowsOf returns pods with these names.
func rowsOf(names ...string) (rows []feed.Row) {
	for _, name := range names {
		rows = append(rows, pod(name, "1"))
	}
	return rows
}

// fakeAgents are the agents of all clusters. Each stream is for the test to answer.
type fakeAgents struct {
	streams chan *fakeStream
	// stream is the last one.
	stream *fakeStream
	// refuse, if it is set, is the answer to requests.
	refuse error
	asked  atomic.Int32
}

// fakeStream is a stream at the agent's side.
type fakeStream struct {
	*feed.Writer
	t       *testing.T
	cluster string
	request *feed.Request
	pipe    *io.PipeWriter
	ctx     context.Context
}

func (a *fakeAgents) open(ctx context.Context, cluster string, request *feed.Request) (io.ReadCloser, error) {
	a.asked.Add(1)
	if a.refuse != nil {
		return nil, a.refuse
	}
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	select {
	case a.streams <- &fakeStream{Writer: feed.NewWriter(w), cluster: cluster, request: request, pipe: w, ctx: ctx}:
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// next returns the next stream that is opened.
func (a *fakeAgents) next(t *testing.T) *fakeStream {
	t.Helper()
	select {
	case s := <-a.streams:
		s.t, a.stream = t, s
		return s
	case <-t.Context().Done():
		t.Fatal("no stream was opened")
		return nil
	}
}

// send sends messages and waits until they are applied.
func (s *fakeStream) send(messages ...*feed.Message) {
	s.t.Helper()
	for _, m := range messages {
		if err := s.Write(m); err != nil {
			s.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// snapshot sends the pods that there are, and that there are no nodes.
func (s *fakeStream) snapshot(rows ...feed.Row) {
	s.t.Helper()
	s.send(&feed.Message{Resource: pods, Definition: &podColumn}, &feed.Message{Resource: pods, Put: rows},
		&feed.Message{Resource: pods, Version: "100", Synced: true}, &feed.Message{Resource: nodes, Absent: true})
}

// hasEnded reports whether the index has given the stream up.
func (s *fakeStream) hasEnded() bool {
	synctest.Wait()
	return s.ctx.Err() != nil
}

// newTestShared returns what followers share, with an empty store.
func newTestShared(t testing.TB, o fleetindex.Options) (*shared, *fakeAgents) {
	t.Helper()
	if o.Location == "" {
		o.Location = filepath.Join(t.TempDir(), "index.db")
	}
	store, err := fleetindex.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	a := &fakeAgents{streams: make(chan *fakeStream)}
	return newShared(a, store, []feed.Resource{nodes, pods}, newMetrics(prometheus.NewRegistry())), a
}

// follow follows cluster a until the test ends, or until the function that it returns is called.
func follow(t *testing.T, s *shared) (*follower, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{shared: s, cluster: fleetindex.Cluster{Name: "a", UID: "uid-a"}, differ: differing{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.run(ctx)
	}()
	return f, func() {
		cancel()
		<-ended
	}
}

// rows returns the pods of the store as cluster/name@version.
func rows(t *testing.T, s *shared) []string {
	t.Helper()
	found, _ := list(t, s)
	return found
}

func list(t *testing.T, s *shared) (found []string, listed []fleetindex.Listed) {
	t.Helper()
	clusters, err := s.store.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o := fleetindex.ListOptions{Resource: pods, Rights: func(string, feed.Resource) fleetindex.Scope { return fleetindex.Scope{All: true} }}
	for _, c := range clusters {
		o.Clusters = append(o.Clusters, fleetindex.Wanted{Cluster: c})
	}
	err = s.store.List(t.Context(), o, func(l *fleetindex.Listed, f *fleetindex.Found) error {
		if f != nil {
			found = append(found, fmt.Sprintf("%s/%s@%s", f.Cluster, f.Name, f.Version))
		} else {
			listed = append(listed, *l)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, listed
}
