//go:build benchapi

package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// figures are by figure and endpoint, one a round.
type figures map[string]map[string][]float64

func (f figures) add(figure, endpoint string, value float64) {
	if f[figure] == nil {
		f[figure] = map[string][]float64{}
	}
	f[figure][endpoint] = append(f[figure][endpoint], value)
}

// value is the median of the rounds, and of memory the most: memory that is used
// a second time does not grow.
func (f figures) value(figure, endpoint string) float64 {
	values := f[figure][endpoint]
	if len(values) > 0 && strings.HasSuffix(figure, "KiB each in our processes") {
		return slices.Max(values)
	}
	return load.Median(values)
}

// targetFigure is what a figure must reach. Aggregated requests go through one
// more kube-apiserver and have no targets; their figures are for reading.
type targetFigure struct {
	figure  string // the end of its name
	against string // what the figure is set against
	limit   float64
	met     func(value, base, limit float64) bool
}

func atLeast(value, base, limit float64) bool { return value >= limit*base }
func atMost(value, base, limit float64) bool  { return value <= limit*base }

func targetFigures() []targetFigure {
	if benchDelay > 0 {
		return []targetFigure{{", p50 ms", "× direct at most", 1.1, atMost}}
	}
	return []targetFigure{
		{", per second", "× direct at least", 0.6, atLeast},
		{", p50 ms", "ms more than direct at most, at one at a time", 1, func(value, base, limit float64) bool { return value <= base+limit }},
		{", relay cpu s per 1000", "s at most", 2, func(value, _, limit float64) bool { return value <= limit }},
		{watching + ", lag p50 ms", "× direct at most", 1.3, atMost},
		{watching + ", KiB each in our processes", "KiB at most", 100, func(value, _, limit float64) bool { return value <= limit }},
		{badTokens + ", per second", "× alone at least", 0.8, atLeast},
	}
}

// targetOf returns the target of a figure, if it has one.
func targetOf(figure string) (targetFigure, bool) {
	var found targetFigure
	for _, o := range targetFigures() {
		if strings.HasSuffix(figure, o.figure) && len(o.figure) > len(found.figure) {
			found = o
		}
	}
	oneAtATime := strings.Contains(figure, ",  1 at a time")
	if found.figure == ", p50 ms" && !oneAtATime {
		return targetFigure{}, false
	}
	return found, found.figure != ""
}

// verdicts has a line for each figure with a target: whether it is met.
func (f figures) verdicts(endpoints []suite.Endpoint) string {
	var out strings.Builder
	for _, figure := range slices.Sorted(maps.Keys(f)) {
		o, ok := targetOf(figure)
		if !ok {
			continue
		}
		for _, endpoint := range endpoints[1:] {
			if len(f[figure][endpoint.Name]) == 0 || endpoint.Name == "aggregated" {
				continue
			}
			value, base := f.value(figure, endpoint.Name), f.value(figure, endpoints[0].Name)
			if strings.HasPrefix(figure, badTokens) {
				base = load.Median(f[badTokens+", alone per second"][endpoint.Name])
			}
			verdict := "MISSED"
			if o.met(value, base, o.limit) {
				verdict = "met"
			}
			fmt.Fprintf(&out, "%-7s %-10s %-50s %8.4g against %.4g (%.2f); target %g %s\n", verdict, endpoint.Name, figure, value, base, value/max(base, 1e-9), o.limit, o.against)
		}
	}
	return out.String()
}

func (f figures) write(t *testing.T, endpoints []suite.Endpoint) {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %s, %d processors, %s, cores kept awake: %s. In brackets: the ratio to direct. –: not measured.\n\n",
		time.Now().Format(time.DateOnly), cmp.Or(os.Getenv("BENCH_GROUND"), "for a glance"), runtime.NumCPU(), runtime.Version(), cmp.Or(os.Getenv("CORES_AWAKE"), "no"))
	fmt.Fprintf(&out, "%-58s", "median; of memory the most")
	for _, endpoint := range endpoints {
		fmt.Fprintf(&out, "%18s", endpoint.Name)
	}
	fmt.Fprintln(&out)
	for _, figure := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&out, "%-58s", figure)
		base := f.value(figure, endpoints[0].Name)
		for _, endpoint := range endpoints {
			if len(f[figure][endpoint.Name]) == 0 {
				fmt.Fprintf(&out, "%18s", "–")
				continue
			}
			value := f.value(figure, endpoint.Name)
			ratio := ""
			if base > 0 && endpoint.Name != endpoints[0].Name && !strings.Contains(figure, "cpu") && !strings.Contains(figure, "KiB") {
				ratio = fmt.Sprintf(" (%.2f)", value/base)
			}
			fmt.Fprintf(&out, "%18s", fmt.Sprintf("%.4g%s", value, ratio))
		}
		fmt.Fprintln(&out)
	}
	fmt.Fprintf(&out, "\n%s", f.verdicts(endpoints))
	t.Log("\n" + out.String())
	file := os.Getenv("BENCH_OUT")
	if file == "" {
		return
	}
	raw, err := json.MarshalIndent(map[string]any{"date": time.Now().Format(time.DateOnly), "cpus": runtime.NumCPU(), "go": runtime.Version(), "ground": os.Getenv("BENCH_GROUND"), "rounds": f}, "", " ")
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
