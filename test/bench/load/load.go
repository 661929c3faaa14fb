// Package load is what the benchmarks of the HTTP path (test/bench/api) and of views
// (test/bench/fleet) share: their lab, loads, and what the addon's processes use.
package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// Installed is what a benchmark measures.
var Installed *suite.Suite

// Run starts a lab, whose processes run without the race detector, for the tests of a folder
// in test/bench. It returns the code to exit with.
func Run(m *testing.M, o suite.Options) int {
	o.WithoutRace = true
	return suite.Run(m, func(dir string) (suite.Options, error) {
		root, err := filepath.Abs("../../..")
		o.Dir, o.Root = dir, root
		return o, err
	}, func(s *suite.Suite) { Installed = s })
}

// Relays are all processes of ours: proxy server, proxy API, agents, manager.
func Relays() ([]string, error) {
	binary := filepath.Join(Installed.Dir, "cluster-proxy")
	all, err := filepath.Glob("/proc/[0-9]*/exe")
	var ours []string
	for _, link := range all {
		if exe, err := os.Readlink(link); err == nil && exe == binary {
			ours = append(ours, filepath.Dir(link))
		}
	}
	if err == nil && len(ours) == 0 {
		err = fmt.Errorf("no process runs %s", binary)
	}
	return ours, err
}

// Used is the CPU time in seconds, and the memory in KiB, of all relays.
func Used(t *testing.T) (cpu, memory float64) {
	t.Helper()
	processes, err := Relays()
	if err != nil {
		t.Fatal(err)
	}
	return Usage(t, processes)
}

// Usage is the CPU time in seconds, and the memory in KiB, of processes, each of which
// is a folder in /proc.
func Usage(t *testing.T, processes []string) (cpu, memory float64) {
	t.Helper()
	for _, dir := range processes {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, field := range fields[11:13] { // user and system, in hundredths of a second
			n, _ := strconv.ParseFloat(field, 64)
			cpu += n / 100
		}
		memory += StatusOf(t, dir)["RssAnon"]
	}
	return cpu, memory
}

// StatusOf has the sizes in the status of a process, in KiB.
func StatusOf(t *testing.T, dir string) map[string]float64 {
	t.Helper()
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]float64{}
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		if fields := strings.Fields(rest); len(fields) == 2 && fields[1] == "kB" {
			sizes[name], _ = strconv.ParseFloat(fields[0], 64)
		}
	}
	return sizes
}

// Caller has connections of its own, like a process of its own.
func Caller(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	own := rest.CopyConfig(cfg)
	own.Dial = (&net.Dialer{}).DialContext // client-go shares connections of equal configurations
	client, err := rest.HTTPClientFor(own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// WarmUp is how long a load goes on before it counts: connections are made, and
// what is cached is known.
const WarmUp = 500 * time.Millisecond

// Send sends one request again and again, from some workers at a time, each as
// soon as it has the answer to its last. Every answer must have the code; 0
// stands for any. Requests that began in the warm-up do not count.
func Send(ctx context.Context, t *testing.T, cfg *rest.Config, path string, workers, code int) (perSecond float64, took []time.Duration) {
	t.Helper()
	client := Caller(t, cfg)
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var failed atomic.Pointer[string]
	counted := time.Now().Add(WarmUp)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var mine []time.Duration
			for ctx.Err() == nil {
				start := time.Now()
				if err := Fetch(client, strings.TrimSuffix(cfg.Host, "/")+path, code); err != nil {
					failed.Store(new(err.Error()))
					return
				}
				if start.After(counted) {
					mine = append(mine, time.Since(start))
				}
			}
			mu.Lock()
			took = append(took, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	if why := failed.Load(); why != nil {
		t.Errorf("%s%s: %s", cfg.Host, path, *why)
	}
	slices.Sort(took)
	return float64(len(took)) / time.Since(counted).Seconds(), took
}

func Fetch(client *http.Client, url string, code int) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != code && code != 0 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

// Rounds is how often everything is measured; the median counts.
var Rounds = 3

// Rows are the rows that are measured; all without BENCH_ROWS.
var Rows = regexp.MustCompile(os.Getenv("BENCH_ROWS"))

func init() {
	if n, err := strconv.Atoi(os.Getenv("BENCH_ROUNDS")); err == nil && n > 0 {
		Rounds = n
	}
}

// Measured is how long one load counts.
const Measured = 2500 * time.Millisecond

// InTurn gives what a round measures, each time beginning with another.
func InTurn[T any](all []T, round int) []T {
	first := round % len(all)
	return slices.Concat(all[first:], all[:first])
}

func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}
