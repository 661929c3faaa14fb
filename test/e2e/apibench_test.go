//go:build benchapi

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// What is measured runs without the race detector.
func init() { withoutRace = true }

// figures are by figure and door, one a round.
type figures map[string]map[string][]float64

func (f figures) add(figure, door string, value float64) {
	if f[figure] == nil {
		f[figure] = map[string][]float64{}
	}
	f[figure][door] = append(f[figure][door], value)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}

// relays are all processes of ours: proxy server, proxy API, agents, manager.
func relays() ([]string, error) {
	binary := filepath.Join(suite.dir, "cluster-proxy")
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

// used is the CPU time in seconds, and the memory in KiB, of all relays.
func used(t *testing.T) (cpu, memory float64) {
	t.Helper()
	processes, err := relays()
	if err != nil {
		t.Fatal(err)
	}
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
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
				n, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				memory += n
			}
		}
	}
	return cpu, memory
}

// load sends one request again and again, from some workers at a time, until ctx
// is done. Every answer must have the code.
func load(ctx context.Context, t *testing.T, cfg *rest.Config, path string, workers, code int) (perSecond float64, took []time.Duration) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var failed atomic.Pointer[string]
	began := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var mine []time.Duration
			for ctx.Err() == nil {
				start := time.Now()
				req, err := http.NewRequest(http.MethodGet, strings.TrimSuffix(cfg.Host, "/")+path, nil)
				if err != nil {
					failed.Store(new(err.Error()))
					return
				}
				resp, err := client.Do(req)
				if err != nil {
					failed.Store(new(err.Error()))
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != code && code != 0 {
					failed.Store(new(fmt.Sprint(resp.Status, err)))
					return
				}
				mine = append(mine, time.Since(start))
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
	return float64(len(took)) / time.Since(began).Seconds(), took
}

// benchRounds is how often everything is measured; the median counts.
var benchRounds = 3

func init() {
	if n, err := strconv.Atoi(os.Getenv("BENCH_ROUNDS")); err == nil && n > 0 {
		benchRounds = n
	}
}

func (f figures) requests(t *testing.T, doors []door, paths map[string]string) {
	const length = 3 * time.Second
	for round := range benchRounds {
		for _, what := range slices.Sorted(maps.Keys(paths)) {
			for _, workers := range []int{1, 16, 64} {
				for _, door := range doors {
					t.Logf("%s, %d at a time, %s (%d of %d)", what, workers, door.name, round+1, benchRounds)
					cpu, _ := used(t)
					ctx, cancel := context.WithTimeout(t.Context(), length)
					rate, took := load(ctx, t, door.cfg, paths[what], workers, http.StatusOK)
					cancel()
					after, _ := used(t)
					name := fmt.Sprintf("%s, %2d at a time", what, workers)
					f.add(name+", per second", door.name, rate)
					if len(took) > 0 {
						f.add(name+", p50 ms", door.name, took[len(took)/2].Seconds()*1e3)
						f.add(name+", p99 ms", door.name, took[len(took)*99/100].Seconds()*1e3)
						f.add(name+", relay cpu s per 1000", door.name, (after-cpu)/float64(len(took))*1000)
					}
				}
			}
		}
	}
}

// watches opens 200 watches and measures how long an event takes to each.
func (f figures) watches(t *testing.T, doors []door, ns string) {
	const open, events = 200, 10
	writer := clientset(t, doors[0].cfg).CoreV1().ConfigMaps(ns)
	for _, door := range doors {
		t.Logf("%d watches, %s", open, door.name)
		cs := clientset(t, door.cfg)
		_, before := used(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		var lags []float64
		arrived := make(chan struct{}, open*events)
		for range open {
			w, err := cs.CoreV1().ConfigMaps(ns).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=watched"})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				for event := range w.ResultChan() {
					object, ok := event.Object.(*corev1.ConfigMap)
					if !ok || object.Data["sent"] == "" {
						continue
					}
					sent, _ := strconv.ParseInt(object.Data["sent"], 10, 64)
					if sent >= 0 && object.Data["door"] == door.name {
						mu.Lock()
						lags = append(lags, float64(time.Now().UnixNano()-sent)/1e6)
						mu.Unlock()
						arrived <- struct{}{}
					}
				}
			})
		}
		for range events {
			patch := fmt.Sprintf(`{"data":{"sent":"%d","door":%q}}`, time.Now().UnixNano(), door.name)
			if _, err := writer.Patch(t.Context(), "watched", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			for range open {
				<-arrived
			}
		}
		_, after := used(t)
		f.add("200 watches, lag p50 ms", door.name, median(lags))
		f.add("200 watches, KiB each in our processes", door.name, (after-before)/open)
		cancel()
		wg.Wait()
	}
}

// besideBadTokens measures a valid user alone, and beside 32 callers with tokens
// that nobody knows.
func (f figures) besideBadTokens(t *testing.T, doors []door, path string) {
	const length = 3 * time.Second
	for range benchRounds {
		for _, door := range doors {
			ctx, cancel := context.WithTimeout(t.Context(), length)
			alone, _ := load(ctx, t, door.cfg, path, 1, http.StatusOK)
			cancel()
			bad := rest.CopyConfig(door.cfg)
			bad.BearerToken = "nobody-knows-this-one"
			ctx, cancel = context.WithTimeout(t.Context(), length)
			var wg sync.WaitGroup
			wg.Go(func() { load(ctx, t, bad, path, 32, 0) })
			beside, _ := load(ctx, t, door.cfg, path, 1, http.StatusOK)
			wg.Wait()
			cancel()
			f.add("valid user, per second", door.name, alone)
			f.add("valid user beside 32 with bad tokens, per second", door.name, beside)
		}
	}
}

// TestAPIBenchmark measures the HTTP path beside direct access, and writes a
// table and the raw figures to BENCH_OUT. It fails on wrong answers only: what
// is owed is in design/performance.md, and the table says what is.
func TestAPIBenchmark(t *testing.T) {
	cluster := suite.clusters[0]
	doors := suite.doors(cluster)
	cs := clientset(t, doors[0].cfg)
	ns := scratch(t, cs)
	make50 := func(name, label string, size int) {
		if _, err := cs.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"bench": label}}, Data: map[string]string{"a": strings.Repeat("x", size)},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		make50(fmt.Sprint("m", i), "list", 700)
	}
	make50("small", "one", 10)
	make50("watched", "one", 10)
	base := "/api/v1/namespaces/" + ns + "/configmaps"
	paths := map[string]string{"small GET": base + "/small", "LIST of 50": base + "?labelSelector=bench%3Dlist"}
	f := figures{}
	if benchDelay > 0 {
		// The way from agent to hub is long; a direct client's would be the same.
		delayed := rest.CopyConfig(doors[0].cfg)
		delayed.Host = "https://" + delayedListener(t, strings.TrimPrefix(doors[0].cfg.Host, "https://"), benchDelay)
		doors[0].cfg = delayed
		for range benchRounds {
			for _, door := range doors {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				_, took := load(ctx, t, door.cfg, paths["LIST of 50"], 1, http.StatusOK)
				cancel()
				if len(took) > 0 {
					f.add(fmt.Sprintf("LIST of 50 at %s of round trip, p50 ms", benchDelay), door.name, took[len(took)/2].Seconds()*1e3)
				}
			}
		}
	} else {
		f.watches(t, doors, ns)
		f.requests(t, doors, paths)
		f.besideBadTokens(t, doors[:len(doors)-1], paths["small GET"])
	}
	f.write(t, doors)
}

func (f figures) write(t *testing.T, doors []door) {
	var out strings.Builder
	fmt.Fprintf(&out, "%-58s", "median")
	for _, door := range doors {
		fmt.Fprintf(&out, "%18s", door.name)
	}
	fmt.Fprintln(&out)
	for _, figure := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&out, "%-58s", figure)
		base := median(f[figure][doors[0].name])
		for _, door := range doors {
			value := median(f[figure][door.name])
			ratio := ""
			if base > 0 && door.name != doors[0].name && !strings.Contains(figure, "cpu") && !strings.Contains(figure, "KiB") {
				ratio = fmt.Sprintf(" (%.2f)", value/base)
			}
			fmt.Fprintf(&out, "%18s", fmt.Sprintf("%.4g%s", value, ratio))
		}
		fmt.Fprintln(&out)
	}
	t.Log("\n" + out.String())
	file := os.Getenv("BENCH_OUT")
	if file == "" {
		return
	}
	raw, err := json.MarshalIndent(map[string]any{"date": time.Now().Format(time.DateOnly), "cpus": runtime.NumCPU(), "go": runtime.Version(), "rounds": f}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".json", raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".txt", []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
