//go:build benchfleet

package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// measureFrozen lists while the agents of one cluster are stopped, as if its machine had
// stopped: at once, and while the hub finds out.
func measureFrozen(t *testing.T, results *fleetResults) {
	makePods(t, benchNamespace, podsEach)
	clusters := benchClusters()
	frozen := clusters[len(clusters)-1]
	want := podsEach * (len(clusters) - 1)
	view := newPlace(t, viewEndpoint().Cfg)
	for round := range load.Rounds {
		for _, form := range []listForm{listForms()[0], listForms()[2]} {
			t.Logf("frozen, %s (%d of %d)", form.name, round+1, load.Rounds)
			// The view has asked all clusters, and has no reason to leave one out.
			if got, err := view.list(t.Context(), podsPath, form); err != nil || got.items != podsEach*len(clusters) {
				t.Errorf("before %s is frozen: %d items and error %v, want %d and none", frozen, got.items, err, podsEach*len(clusters))
			}
			thaw := freeze(t, frozen)
			for range 3 {
				began := time.Now()
				got, err := view.list(t.Context(), podsPath, form)
				if err != nil {
					t.Errorf("while %s is frozen: %v", frozen, err)
					continue
				}
				if got.items != want || !strings.Contains(strings.Join(got.warnings, "\n"), frozen) {
					t.Errorf("while %s is frozen: %d items and warnings %q, want %d and one about it", frozen, got.items, got.warnings, want)
				}
				results.add(fmt.Sprintf(frozenList, form.name), ofView, got.slowest.Seconds())
				results.add(fmt.Sprintf(frozenWhole, form.name), ofView, time.Since(began).Seconds())
			}
			thaw()
			suite.Eventually(t, frozen+" reachable", func() error { return load.Installed.Reachable(t.Context(), frozen) })
		}
	}
}

// freeze stops the agents of a cluster without a word to anybody, until thaw is called or
// the test ends.
func freeze(t *testing.T, cluster string) (thaw func()) {
	t.Helper()
	all, err := load.Relays()
	if err != nil {
		t.Fatal(err)
	}
	var agents []int
	for _, dir := range all {
		arguments, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if words := strings.Split(string(arguments), "\x00"); err != nil || !slices.Contains(words, "proxy-agent") || !slices.Contains(words, "--cluster-name="+cluster) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		agents = append(agents, pid)
	}
	if len(agents) == 0 {
		t.Fatalf("no process is an agent of %s", cluster)
	}
	thaw = func() {
		for _, pid := range agents {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may be gone
		}
	}
	t.Cleanup(thaw)
	for _, pid := range agents {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	return thaw
}
