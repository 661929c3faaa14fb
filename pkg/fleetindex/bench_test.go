package fleetindex

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
)

// rowsVariable names the variable with the number of rows of the benchmark.
const rowsVariable = "FLEETINDEX_ROWS"

// BenchmarkStore fills a store of each engine and asks it. Each result is of one operation; p99 is that
// of the operations of the run.
//
//	go test ./pkg/fleetindex -run - -bench Store -benchtime 50x
func BenchmarkStore(b *testing.B) {
	rows := 100_000
	if text := os.Getenv(rowsVariable); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("sqlite", func(b *testing.B) {
		at := filepath.Join(b.TempDir(), "index.db")
		benchmarkStore(b, location(at), rows, func(*Store) int64 {
			var bytes int64
			for _, file := range []string{at, at + "-wal"} {
				if info, err := os.Stat(file); err == nil {
					bytes += info.Size()
				}
			}
			return bytes
		})
	})
	b.Run("postgresql", func(b *testing.B) {
		benchmarkStore(b, newPostgres(b), rows, func(s *Store) (bytes int64) {
			err := s.reads.QueryRowContext(b.Context(), `SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'`).Scan(&bytes)
			if err != nil {
				b.Fatal(err)
			}
			return bytes
		})
	})
}

// perCluster is how many rows a cluster of the benchmark has.
const perCluster = 200

func benchmarkStore(b *testing.B, at location, rows int, size func(*Store) int64) {
	s := at.open(b, Options{})
	before := heap()
	began := time.Now()
	var last *Writer
	for c := range rows / perCluster {
		last = claim(b, s, fmt.Sprintf("cluster-%04d", c), podDefinition)
		put(b, last, podDefinition, benchmarkRows(c)...)
	}
	took := time.Since(began)
	if s.dialect == &postgres {
		if _, err := s.writes.ExecContext(b.Context(), "ANALYZE"); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("%d rows in %.1f s: %.0f a second, %d bytes a row on disk, %d of heap", rows, took.Seconds(), float64(rows)/took.Seconds(), size(s)/int64(rows), (heap()-before)/int64(rows))
	everywhere := SearchOptions{Rights: everything, Limit: 100}
	team := SearchOptions{Limit: 100, Rights: func(cluster string, _ feed.Resource) Scope {
		if cluster[len(cluster)-1] == '7' {
			return Scope{Namespaces: []string{"ns-1"}}
		}
		return Scope{}
	}}
	search := func(o SearchOptions, text string) func() error {
		o.Query = parse(b, text)
		return func() error {
			_, _, err := s.Search(b.Context(), o)
			return err
		}
	}
	count := func(text string, by ...query.Key) func() error {
		o := everywhere
		o.Query = parse(b, text)
		return func() error {
			_, err := s.Count(b.Context(), o, by...)
			return err
		}
	}
	b.Run("a cluster of 10 rows that connects, 64 at a time", func(b *testing.B) {
		var n atomic.Int64
		b.SetParallelism(64 / runtime.GOMAXPROCS(0))
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				c := int(n.Add(1))
				put(b, claim(b, s, fmt.Sprintf("small-%05d", c), podDefinition), podDefinition, benchmarkRows(c)[:10]...)
			}
		})
	})
	n, clusters := 0, all(b, s)
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"search/rare word", search(everywhere, "rare")},
		{"search/word of all", search(everywhere, "nginx")},
		{"search/status", search(everywhere, "kind:pod status:CrashLoopBackOff cluster:cluster-00*")},
		{"search/no match of a pattern", search(everywhere, "name:x*y*z")},
		{"search/team", search(team, "nginx")},
		{"count/word of all by cluster", count("nginx", query.Cluster)},
		{"count/all by cluster and status", count("", query.Cluster, query.Status)},
		{"count/word of all by cluster and status", count("nginx", query.Cluster, query.Status)},
		{"list/page", func() error {
			return s.List(b.Context(), ListOptions{Resource: podDefinition.Resource, Clusters: clusters, Rights: everything, Limit: 5}, func(*Listed, *Found) error { return nil })
		}},
		{"list/all", func() error {
			return s.List(b.Context(), ListOptions{Resource: podDefinition.Resource, Clusters: clusters, Rights: everything}, func(*Listed, *Found) error { return nil })
		}},
		{"change of one row", func() error {
			n++
			_, err := last.Apply(b.Context(), Changes{Resource: podDefinition.Resource, Put: []feed.Row{pod("ns-0", "web-000000-0", strconv.Itoa(n), "Pending")}})
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) { measure(b, c.run) })
	}
}

// measure reports the median and the 99th percentile.
func measure(b *testing.B, run func() error) {
	var times []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := run(); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(times[(len(times)-1)*99/100].Microseconds())/1000, "p99-ms")
}

// benchmarkRows are pods of a cluster: in 20 namespaces, one in a hundred failing, one in 1,000 rare.
func benchmarkRows(cluster int) []feed.Row {
	var rows []feed.Row
	for n := range perCluster {
		status, image := "Running", "registry.example.com/platform/nginx:1.25.3-alpine"
		if n%100 == 50 {
			status = "CrashLoopBackOff"
		}
		if (cluster*perCluster+n)%1000 == 0 {
			image = "registry.example.com/platform/rare:2.0"
		}
		labels := fmt.Sprintf("app.kubernetes.io/name=web app.kubernetes.io/instance=shop pod-template-hash=%x", (cluster+n)*2654435761%(1<<32))
		row := pod(fmt.Sprintf("ns-%d", n%20), fmt.Sprintf("web-%06x-%d", cluster*7919%(1<<24), n), strconv.Itoa(1000+n), status, image, labels)
		row.UID = fmt.Sprintf("%08x-1111-4222-8333-%012x", cluster, n)
		row.Node = fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", cluster%256, n%10)
		rows = append(rows, row)
	}
	return rows
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
