//go:build benchfleet

package fleet

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
)

// measureMemory compares lists of 6,000 and of 60,000 pods of 3 simulated members: three
// kube-apiservers with 60,000 pods of this size would not leave the machine quiet.
func measureMemory(t *testing.T, results *fleetResults) {
	for _, size := range []struct {
		name string
		pods int
	}{{simulatedLists, 6000}, {simulatedLongLists, 60_000}} {
		t.Run(size.name, func(t *testing.T) {
			members, _, view, process := simulate(t, simulated{Clusters: 3, Pods: size.pods / 3})
			warmUpList(t, view)
			comparison{
				name: size.name, path: podsPath, items: size.pods, members: members, view: view,
				serving: []string{process}, all: []string{process},
			}.lists(t, results)
		})
	}
}

// warmUpList makes connections, and the client's and the view's first garbage.
func warmUpList(t *testing.T, view place) {
	t.Helper()
	if text := view.ask(t, podsPath+"?limit=1"); !strings.Contains(text, `"restartPolicy":`) {
		t.Fatalf("a page of one pod is %.500s", text)
	}
}

// measureSilent measures when the first row of a list is there, while one of 50 members
// takes the request and does not answer it.
func measureSilent(t *testing.T, results *fleetResults) {
	const clusters, pods = 50, 10
	members, _, view, _ := simulate(t, simulated{Clusters: clusters, Pods: pods, Silent: true})
	for range load.Rounds {
		for _, form := range []listForm{listForms()[1], listForms()[2]} {
			one, err := members[0].list(t.Context(), podsPath, form)
			if err != nil {
				t.Fatal(err)
			}
			got, err := view.list(t.Context(), podsPath, form)
			if err != nil {
				t.Fatal(err)
			}
			if want := (clusters - 1) * pods; got.items != want || !strings.Contains(strings.Join(got.warnings, "\n"), clusterName(clusters/2)) {
				t.Errorf("%s of 50 clusters one of which is silent: %d items and warnings %q, want %d and one about %s", form.name, got.items, got.warnings, want, clusterName(clusters/2))
			}
			results.add(fmt.Sprintf(firstRow, form.name), direct, one.first.Seconds()*1e3)
			results.add(fmt.Sprintf(firstRow, form.name), ofView, got.first.Seconds()*1e3)
		}
	}
}

// measureFar compares a list of 50 clusters with one of a single cluster that has as many
// pods, all of them 20 ms away.
func measureFar(t *testing.T, results *fleetResults) {
	const clusters, pods, away = 50, 10, 20 * time.Millisecond
	_, _, view, _ := simulate(t, simulated{Clusters: clusters, Pods: pods, Delay: away})
	one, _, _, _ := simulate(t, simulated{Clusters: 1, Pods: clusters * pods, Delay: away})
	form := listForms()[0]
	for round := range 1 + load.Rounds {
		for _, side := range sides(round) {
			for range 10 {
				places := one
				if side == ofView {
					places = []place{view}
				}
				began := time.Now()
				got, err := listEach(t.Context(), places, podsPath, form)
				if err != nil {
					t.Fatal(err)
				}
				if got.items != clusters*pods {
					t.Errorf("%s has %d pods, want %d", side, got.items, clusters*pods)
				}
				if round > 0 {
					results.add(farList, side, time.Since(began).Seconds()*1e3)
				}
			}
		}
	}
}

// measureIdleWatches measures what watches of 50 clusters take when their clients have all
// of 5,000 objects and nothing happens.
func measureIdleWatches(t *testing.T, results *fleetResults) {
	const clusters, pods, watches = 50, 100, 20
	for range load.Rounds {
		_, _, view, process := simulate(t, simulated{Clusters: clusters, Pods: pods})
		warmUpList(t, view)
		view.ask(t, collectPath)
		_, before := load.Usage(t, []string{process})
		most := growth(t, []string{process})
		ctx, cancel := context.WithCancel(t.Context())
		for range watches {
			if err := openWatch(ctx, view, clusters*pods); err != nil {
				t.Fatal(err)
			}
		}
		results.add(watchBegins, ofView, most()/watches)
		view.ask(t, collectPath)
		_, after := load.Usage(t, []string{process})
		results.add(watchMemory, ofView, (after-before)/1024/watches)
		cancel()
	}
}

// openWatch opens a watch and returns when it has brought so many objects.
func openWatch(ctx context.Context, p place, objects int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+podsPath+"?watch=1", nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { resp.Body.Close() })
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for range objects {
		if line, err := lines.ReadSlice('\n'); err != nil || !strings.HasPrefix(string(line), `{"type":"ADDED"`) {
			return fmt.Errorf("reading the beginning of a watch: %w, %.200s", err, line)
		}
	}
	return nil
}

// measureMany lists 500 members as kubectl get pods -A does, and counts how often each of
// them is asked.
func measureMany(t *testing.T, results *fleetResults) {
	const clusters, pods = 500, 10
	members, control, view, process := simulate(t, simulated{Clusters: clusters, Pods: pods})
	form := listForms()[2]
	for round := range 1 + load.Rounds {
		for _, side := range sides(round) {
			places := members
			if side == ofView {
				places = []place{view}
			}
			control.ask(t, "/")
			cpuBefore, _ := load.Usage(t, []string{process})
			most := growth(t, []string{process})
			began := time.Now()
			got, err := listEach(t.Context(), places, podsPath, form)
			took := time.Since(began)
			if err != nil {
				t.Fatal(err)
			}
			if got.items != clusters*pods {
				t.Errorf("%s has %d pods, want %d", side, got.items, clusters*pods)
			}
			asked, err := strconv.Atoi(control.ask(t, "/"))
			if err != nil {
				t.Fatal(err)
			}
			results.add(manyAsked, side, float64(asked))
			if side == ofView {
				results.add(manyMemory, side, most())
			}
			if round > 0 {
				results.add(manyList, side, took.Seconds())
				if side == ofView {
					cpuAfter, _ := load.Usage(t, []string{process})
					results.add(manyCPU, side, (cpuAfter-cpuBefore)/(clusters*pods)*1000)
				}
			}
		}
	}
}
