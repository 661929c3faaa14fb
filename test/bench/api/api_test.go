//go:build benchapi

package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// benchDelay is how long a round trip between agents and the hub takes; nothing
// is added if it is 0.
var benchDelay, _ = time.ParseDuration(os.Getenv("BENCH_DELAY"))

func TestMain(m *testing.M) { os.Exit(load.Run(m, suite.Options{Delay: benchDelay})) }

func (f figures) requests(t *testing.T, endpoints []suite.Endpoint, paths map[string]string, workers ...int) {
	for round := range load.Rounds {
		for _, what := range slices.Sorted(maps.Keys(paths)) {
			for _, n := range workers {
				row := fmt.Sprintf("%s, %2d at a time", what, n)
				if !load.Rows.MatchString(row) {
					continue
				}
				for _, endpoint := range load.InTurn(endpoints, round) {
					t.Logf("%s, %s (%d of %d)", row, endpoint.Name, round+1, load.Rounds)
					f.request(t, endpoint, row, paths[what], n)
				}
			}
		}
	}
}

func (f figures) request(t *testing.T, endpoint suite.Endpoint, row, path string, workers int) {
	before, _ := load.Used(t)
	ctx, cancel := context.WithTimeout(t.Context(), load.WarmUp+load.Measured)
	defer cancel()
	rate, took := load.Send(ctx, t, endpoint.Cfg, path, workers, http.StatusOK)
	after, _ := load.Used(t)
	if len(took) == 0 {
		return
	}
	f.add(row+", per second", endpoint.Name, rate)
	f.add(row+", p50 ms", endpoint.Name, took[len(took)/2].Seconds()*1e3)
	f.add(row+", p99 ms", endpoint.Name, took[len(took)*99/100].Seconds()*1e3)
	// The processor was used in the warm-up as well.
	all := rate * (load.WarmUp + load.Measured).Seconds()
	f.add(row+", relay cpu s per 1000", endpoint.Name, (after-before)/all*1000)
}

const watching = "200 watches"

// watches opens 200 watches and measures how long an event takes to each. Memory
// that the endpoint before has made a process take is not asked for again, so each
// round begins with another endpoint.
func (f figures) watches(t *testing.T, endpoints, turn []suite.Endpoint, ns string) {
	const open, events = 200, 20
	if !load.Rows.MatchString(watching) {
		return
	}
	writer := suite.Clientset(t, endpoints[0].Cfg).CoreV1().ConfigMaps(ns)
	for _, endpoint := range turn {
		t.Logf("%s, %s", watching, endpoint.Name)
		cs := suite.Clientset(t, endpoint.Cfg)
		_, before := load.Used(t)
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
					if sent >= 0 && object.Data["endpoint"] == endpoint.Name {
						mu.Lock()
						lags = append(lags, float64(time.Now().UnixNano()-sent)/1e6)
						mu.Unlock()
						arrived <- struct{}{}
					}
				}
			})
		}
		for range events {
			patch := fmt.Sprintf(`{"data":{"sent":"%d","endpoint":%q}}`, time.Now().UnixNano(), endpoint.Name)
			if _, err := writer.Patch(t.Context(), "watched", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			for range open {
				<-arrived
			}
		}
		_, after := load.Used(t)
		f.add(watching+", lag p50 ms", endpoint.Name, load.Median(lags))
		f.add(watching+", KiB each in our processes", endpoint.Name, (after-before)/open)
		cancel()
		wg.Wait()
	}
}

// besideBadTokens measures a valid user alone, and then beside 32 callers with
// tokens that nobody knows, who ask again as soon as they are refused. They have
// connections of their own, but the user's address and the same two cores.
func (f figures) besideBadTokens(t *testing.T, endpoints []suite.Endpoint, path string) {
	const callers = 32
	for round := range load.Rounds {
		for _, endpoint := range load.InTurn(endpoints, round) {
			if !load.Rows.MatchString(badTokens) {
				return
			}
			t.Logf("%s, %s (%d of %d)", badTokens, endpoint.Name, round+1, load.Rounds)
			ctx, cancel := context.WithTimeout(t.Context(), load.WarmUp+load.Measured)
			alone, _ := load.Send(ctx, t, endpoint.Cfg, path, 1, http.StatusOK)
			cancel()
			bad := rest.CopyConfig(endpoint.Cfg)
			bad.BearerToken = "nobody-knows-this-one"
			ctx, cancel = context.WithTimeout(t.Context(), load.WarmUp+load.Measured)
			var refused float64
			var wg sync.WaitGroup
			wg.Go(func() { refused, _ = load.Send(ctx, t, bad, path, callers, 0) })
			beside, _ := load.Send(ctx, t, endpoint.Cfg, path, 1, http.StatusOK)
			wg.Wait()
			cancel()
			f.add(badTokens+", per second", endpoint.Name, beside)
			f.add(badTokens+", alone per second", endpoint.Name, alone)
			f.add(badTokens+", refused per second", endpoint.Name, refused)
		}
	}
}

const badTokens = "valid user beside 32 with bad tokens"

// TestAPIBenchmark measures the HTTP path beside direct access, and writes a
// table and the raw figures to BENCH_OUT. It fails on wrong answers only:
// the table says which target figures are met. It disturbs every figure that is
// measured at the same time.
func TestAPIBenchmark(t *testing.T) {
	load.Installed.NeedLab(t, "measures processes of this machine")
	cluster := load.Installed.Clusters[0]
	endpoints := load.Installed.Endpoints(cluster)
	cs := suite.Clientset(t, endpoints[0].Cfg)
	ns := suite.Scratch(t, cs)
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
		delayed := rest.CopyConfig(endpoints[0].Cfg)
		delayed.Host = "https://" + suite.DelayedListener(t, strings.TrimPrefix(endpoints[0].Cfg.Host, "https://"), benchDelay)
		endpoints[0].Cfg = delayed
		f.requests(t, endpoints, paths, 1)
	} else {
		for round := range load.Rounds {
			f.watches(t, endpoints, load.InTurn(endpoints, round), ns)
		}
		f.requests(t, endpoints, paths, 1, 16, 64)
		makeBulk(t, endpoints, ns)
		f.bulk(t, endpoints, base+"?labelSelector=bench%3Dbulk")
		// The hub's kube-apiserver refuses bad tokens itself.
		f.besideBadTokens(t, endpoints[:len(endpoints)-1], paths["small GET"])
		f.policies(t, endpoints[1:], paths["small GET"])
	}
	f.write(t, endpoints)
}
