package fleetview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// storedMember answers each request with the same bytes.
type storedMember struct {
	name string
	body []byte
}

func (m storedMember) Name() string { return m.name }
func (m storedMember) UID() string  { return "uid-of-" + m.name }
func (m storedMember) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, ContentLength: -1,
		Header: http.Header{"Content-Type": {fleet.JSONType}}, Body: io.NopCloser(bytes.NewReader(m.body)),
	}, nil
}

// benchPod is a pod of 9.5 kB.
func benchPod(i int) map[string]any {
	var containers []map[string]any
	for c := range 6 {
		containers = append(containers, map[string]any{
			"name": fmt.Sprintf("container-%d", c), "image": "registry.example.com/shop/web@sha256:" + strings.Repeat("0123456789abcdef", 4),
			"env":       []map[string]any{{"name": "A", "value": strings.Repeat("value ", 60)}, {"name": "B", "value": strings.Repeat(`"quoted" `, 60)}},
			"resources": map[string]any{"limits": map[string]any{"cpu": "1", "memory": "1Gi"}, "requests": map[string]any{"cpu": "1", "memory": "1Gi"}},
		})
	}
	return map[string]any{
		"metadata": map[string]any{
			"name": fmt.Sprintf("web-%06d", i), "namespace": "shop", "uid": fmt.Sprintf("6b1f3a52-0000-0000-0000-%012d", i), "resourceVersion": fmt.Sprint(100000 + i),
			"labels": map[string]any{"app": "web", "tier": "front"}, "annotations": map[string]any{"checksum/config": strings.Repeat("ab", 32)},
		},
		"spec":   map[string]any{"containers": containers, "nodeName": "node-1"},
		"status": map[string]any{"phase": "Running", "podIP": "10.0.0.1", "message": strings.Repeat("status ", 250)},
	}
}

func storedMembers(b *testing.B, members, each int) ([]fleet.Member, int64) {
	items := make([]map[string]any, each)
	for i := range items {
		items[i] = benchPod(i)
	}
	body, err := json.Marshal(map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "5"}, "items": items})
	if err != nil {
		b.Fatal(err)
	}
	all := make([]fleet.Member, members)
	for i := range all {
		all[i] = storedMember{fmt.Sprintf("c%03d", i), body}
	}
	return all, int64(members) * int64(len(body))
}

// discard is a client that reads everything.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkList lists 6,000 pods of 9.5 kB of 3 clusters, 60,000, and 10 pods of each of
// 500. BenchmarkCopy is the limit: it copies the same bytes.
func BenchmarkList(b *testing.B) {
	for _, size := range []struct{ members, each int }{{3, 2000}, {3, 20_000}, {500, 10}} {
		b.Run(fmt.Sprintf("%dx%d", size.members, size.each), func(b *testing.B) {
			members, n := storedMembers(b, size.members, size.each)
			view := testView()
			view.Members = testViewOf(members)
			h := New(Options{})
			b.SetBytes(n)
			b.ReportAllocs()
			most := watchHeap(b)
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/api/v1/pods", nil)
				h.Serve(&discard{http.Header{}}, r, view)
			}
			b.ReportMetric(float64(most())/(1<<20), "heap-MiB")
		})
	}
}

func BenchmarkCopy(b *testing.B) {
	members, n := storedMembers(b, 3, 2000)
	b.SetBytes(n)
	b.ReportAllocs()
	for b.Loop() {
		for _, m := range members {
			response, err := m.RoundTrip(&http.Request{URL: &url.URL{Path: "/api/v1/pods"}})
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{response.Body}, make([]byte, 32<<10))
		}
	}
}

// watchHeap returns a function that returns the most that the heap grew, as seen every 10 ms.
func watchHeap(b *testing.B) func() uint64 {
	b.Helper()
	debug.FreeOSMemory() // and not what was there before
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	before, most := stats.HeapInuse, uint64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for ticker := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-ticker.C:
				var stats runtime.MemStats
				runtime.ReadMemStats(&stats)
				most = max(most, stats.HeapInuse-min(before, stats.HeapInuse))
			case <-stop:
				ticker.Stop()
				return
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-done
		return most
	}
}
