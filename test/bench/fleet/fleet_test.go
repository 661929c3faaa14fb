//go:build benchfleet

package fleet

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// fleetRow is a part of the benchmark of views. BENCH_ROWS selects by its name.
type fleetRow struct {
	name string
	// needsLab tells rows over whole clusters from those over simulated members.
	needsLab bool
	measure  func(*testing.T, *fleetResults)
}

// fleetRows are in the order in which they are measured: memory that one row has made a
// process take is not asked for again, so lists come first.
func fleetRows() []fleetRow {
	return []fleetRow{
		{"lists", true, measureLists},
		{"gets", true, measureGets},
		{"event", true, measureEvent},
		{"50 watches", true, measureWatches},
		{"informer", true, measureInformer},
		{"frozen", true, measureFrozen},
		{"members, memory", false, measureMemory},
		{"members, silent", false, measureSilent},
		{"members, far", false, measureFar},
		{"members, watches", false, measureIdleWatches},
		{"members, 500", false, measureMany},
	}
}

// selected are the rows that BENCH_ROWS names.
func selected() []fleetRow {
	return slices.DeleteFunc(fleetRows(), func(r fleetRow) bool { return !load.Rows.MatchString(r.name) })
}

// allView is the FleetView that the chart makes.
const allView = "all"

// thirdCluster makes the members of the suite's lab three.
const thirdCluster = "cluster3"

// withoutClusters is true if the selected rows need no lab.
var withoutClusters = !slices.ContainsFunc(selected(), func(r fleetRow) bool { return r.needsLab })

func TestMain(m *testing.M) {
	if process := childProcess(); process != nil {
		if err := process(); err != nil {
			fmt.Fprintln(os.Stderr, "running a process of the benchmark:", err)
			os.Exit(1)
		}
		return
	}
	if withoutClusters {
		os.Exit(m.Run())
	}
	os.Exit(load.Run(m, suite.Options{More: []string{thirdCluster}}))
}

// The two sides that are compared.
const (
	direct = "direct"
	ofView = "view"
)

// sides are in the order in which a round measures them.
func sides(round int) []string { return load.InTurn([]string{direct, ofView}, round) }

// TestFleetBenchmark measures views of many clusters beside the same requests to each
// cluster, and writes a table and the raw figures to BENCH_OUT. It fails on wrong answers
// only: the table says which target figures are met. It disturbs every figure that is
// measured at the same time, and the frozen row cuts a cluster off for a while.
func TestFleetBenchmark(t *testing.T) {
	if !withoutClusters {
		load.Installed.NeedLab(t, "measures processes of this machine")
	}
	results := &fleetResults{values: map[string]map[string][]float64{}}
	for _, row := range selected() {
		t.Run(row.name, func(t *testing.T) { row.measure(t, results) })
	}
	results.write(t)
}

// directPlaces are the members of the lab's view, straight.
func directPlaces(t *testing.T) []place {
	t.Helper()
	var places []place
	for _, cluster := range benchClusters() {
		places = append(places, newPlace(t, load.Installed.Direct(cluster)))
	}
	return places
}

// benchClusters are the lab's managed clusters.
func benchClusters() []string { return slices.Sorted(slices.Values(load.Installed.Clusters)) }

// viewEndpoint is the view of all clusters, for a user of the hub.
func viewEndpoint() suite.Endpoint {
	cfg := load.Installed.ThroughProxyAPI("")
	cfg.Host, cfg.BearerToken = "https://"+load.Installed.ProxyAPI+"/@"+allView, load.Installed.HubToken
	return suite.Endpoint{Name: ofView, Cfg: cfg}
}
