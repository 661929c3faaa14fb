package watch

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// counter is a client that counts bytes and says when events of that many have arrived.
type counter struct {
	header http.Header
	got    chan int
	done   <-chan struct{}
}

func (c *counter) Header() http.Header { return c.header }
func (c *counter) WriteHeader(int)     {}
func (c *counter) Flush()              {}
func (c *counter) Write(p []byte) (int, error) {
	n := 0
	for _, b := range p {
		if b == '\n' {
			n++
		}
	}
	select {
	case c.got <- n:
	case <-c.done:
	}
	return len(p), nil
}

func (c *counter) wait(events int) {
	for events > 0 {
		events -= <-c.got
	}
}

func (f *fixture) count() (c *counter, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c = &counter{header: http.Header{}, got: make(chan int), done: ctx.Done()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Serve(c, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), f.options)
	}()
	return c, func() { cancel(); <-done }
}

// BenchmarkMemory is what a quiet stream takes over 50 clusters with 100 objects each, and
// the goroutines and pipes of the fakes.
func BenchmarkMemory(b *testing.B) {
	var clusters []*cluster
	for i := range 50 {
		c := newCluster(fmt.Sprint("cluster", i))
		for j := range 100 {
			c.set(fmt.Sprintf("object-with-a-name-as-long-as-a-pods-%d", j))
		}
		clusters = append(clusters, c)
	}
	f := newFixture(nil, clusters...)
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	for b.Loop() {
		before := memory()
		const streams = 10
		var stops []func()
		for range streams {
			c, stop := f.count()
			c.wait(50 * 100)
			stops = append(stops, stop)
		}
		b.ReportMetric(float64(memory()-before)/streams/(1<<20), "MiB/stream")
		for _, stop := range stops {
			stop()
		}
	}
}

// BenchmarkEvents is the events/s of one stream of 3 clusters, the fakes included.
func BenchmarkEvents(b *testing.B) {
	clusters := []*cluster{newCluster("a"), newCluster("b"), newCluster("c")}
	f := newFixture(nil, clusters...)
	c, stop := f.count()
	defer stop()
	i := 0
	for b.Loop() {
		clusters[i%3].set("x")
		c.wait(1)
		i++
	}
}

// BenchmarkEventPath is what the stream does for one event of 9.5 KB of a member, from the
// bytes that arrive to those that the client gets.
func BenchmarkEventPath(b *testing.B) {
	object := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"shop","uid":"0f3a8a5e-5c2b-4f0d-9d1f-000000000000","resourceVersion":"107","managedFields":[` +
		strings.Repeat(`{"f:spec":{"k:{\"name\":\"web\"}":{".":{},"f:name":{}}}},`, 60) + `{}]},"spec":{"env":[` + strings.Repeat(`{"name":"SETTING","value":"`+strings.Repeat("v", 36)+`"},`, 80) + `{}]}}`
	lines := &repeated{text: []byte(`{"type":"MODIFIED","object":` + object + "}\n")}
	f := newFixture(nil, newCluster("a"))
	s := newStream(f.options, encoding.Form{}.NewCodec(), func() {}, version.Version{}, nil)
	r := newReflector(s, f.clusters[0], "")
	s.join(r.member)
	next := r.source.Events(lines)
	w := &counter{header: http.Header{}, got: make(chan int, 1), done: b.Context().Done()}
	b.SetBytes(int64(len(lines.text)))
	b.ReportAllocs()
	for b.Loop() {
		e, err := next()
		if err == nil {
			err = r.handle(e)
		}
		if err != nil {
			b.Fatal(err)
		}
		<-s.wake
		s.flush(w)
		<-w.got
	}
}

// repeated is a stream of one text again and again.
type repeated struct {
	text []byte
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	if r.at += n; r.at == len(r.text) {
		r.at = 0
	}
	return n, nil
}
