package fleetindexer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

// sink counts what is written.
type sink struct {
	http.ResponseWriter
	n int64
}

func (s *sink) Write(b []byte) (int, error) {
	s.n += int64(len(b))
	return len(b), nil
}

// BenchmarkTables lists the pods of 5,000 clusters with 10 each, in pages of 500, as kubectl does, with decisions that
// are remembered.
//
//	go test ./pkg/fleetindexer -run - -bench Tables -benchtime 10x
func BenchmarkTables(b *testing.B) {
	f := newFixture(b)
	var names []string
	for c := range 5000 {
		name := fmt.Sprintf("cluster-%04d", c)
		var rows []feed.Row
		for n := range 10 {
			row := printed("shop", fmt.Sprintf("web-7d4b9c6f5-%05d", n))
			row.UID = fmt.Sprintf("%08x-1111-4222-8333-%012x", c, n)
			row.Labels = map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "shop", "pod-template-hash": "7d4b9c6f5"}
			rows = append(rows, row)
		}
		f.put(b, name, rows...)
		names = append(names, name)
	}
	for _, metadata := range []bool{true, false} {
		body, err := json.Marshal(indexapi.TablesRequest{Caller: jane, Resource: pods, Version: "v1", Metadata: metadata, Limit: 500, Clusters: asked(names...)})
		if err != nil {
			b.Fatal(err)
		}
		post := func() *sink {
			w := &sink{ResponseWriter: httptest.NewRecorder()}
			f.routes().ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodPost, indexapi.TablesPath, bytes.NewReader(body)))
			return w
		}
		b.Run(fmt.Sprintf("metadata=%v", metadata), func(b *testing.B) {
			var times []time.Duration
			for b.Loop() {
				b.StopTimer()
				for _, name := range names {
					f.hear(b, name)
				}
				// Decisions that are needed are asked for before.
				post()
				b.StartTimer()
				began := time.Now()
				w := post()
				times = append(times, time.Since(began))
				b.ReportMetric(float64(w.n)/(1<<20), "MiB")
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Milliseconds()), "p50-ms")
		})
	}
}
