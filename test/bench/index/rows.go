package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

// group is rows that are measured together. Each needs what those before it leave.
type group struct {
	name    string
	measure func(context.Context, *world) error
}

var groups = []group{
	{"clusters without rows", measureIdle},
	{"snapshot", measureSnapshot},
	{"lists", measureLists},
	{"lists of large clusters", measureLarge},
	{"search", measureSearch},
	{"memory", measureMemory},
	{"changes", measureChanges},
	{"change to row", measureLag},
	{"restart", measureRestart},
	{"live", measureLive},
}

// idleFor is how long CPU time is measured while nothing happens.
const idleFor = 20 * time.Second

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// measureIdle connects an index to clusters without rows.
func measureIdle(ctx context.Context, w *world) error {
	if err := w.startIndex("empty.db"); err != nil {
		return err
	}
	if err := w.awaitMetric(ctx, float64(len(w.all)), clustersMetric, current); err != nil {
		return err
	}
	w.add(connected, time.Since(w.index.began).Seconds())
	var err error
	if w.withoutRows, err = w.index.resident(); err != nil {
		return err
	}
	w.add(idleMemory, w.withoutRows/1024/float64(len(w.all)))
	before, err := w.index.cpu()
	if err != nil {
		return err
	}
	if err := pause(ctx, idleFor); err != nil {
		return err
	}
	after, err := w.index.cpu()
	if err != nil {
		return err
	}
	w.add(idleCPU, (after-before).Seconds()*1000/idleFor.Seconds()/float64(len(w.all)))
	w.stopIndex()
	return nil
}

// measureSnapshot has an empty index take all rows.
func measureSnapshot(ctx context.Context, w *world) error {
	if err := w.order(ctx, "/load", nil); err != nil {
		return err
	}
	if err := w.startIndex("index.db"); err != nil {
		return err
	}
	if err := w.awaitMetric(ctx, float64(w.rows), changesMetric, put); err != nil {
		return err
	}
	took := time.Since(w.index.began)
	w.add(fmt.Sprintf(snapshot, w.rows), took.Seconds())
	used, err := w.index.cpu()
	if err != nil {
		return err
	}
	w.add(snapshotCPU, used.Seconds())
	if err := w.awaitMetric(ctx, float64(len(w.all)), clustersMetric, current); err != nil {
		return err
	}
	size := int64(0)
	for _, end := range []string{"", "-wal"} {
		info, err := os.Stat(filepath.Join(w.dir, "index.db"+end))
		if err == nil {
			size += info.Size()
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	w.add(onDisk, float64(size)/float64(w.rows))
	return w.order(ctx, "/asked", &asked{})
}

// measureLists lists the pods of thousands of clusters: as a user of whom the clusters have decided nothing yet, and again.
func measureLists(ctx context.Context, w *world) error {
	return w.measureView(ctx, viewOfMany, w.Clusters*w.Pods, fmt.Sprintf(listNew, w.Clusters, w.Pods), fmt.Sprintf(listAgain, w.Clusters, w.Pods), fmt.Sprintf(listCPU, w.Clusters, w.Pods))
}

// measureLarge lists those of fewer clusters with more pods each.
func measureLarge(ctx context.Context, w *world) error {
	return w.measureView(ctx, viewOfLarge, w.Large*w.LargePods, fmt.Sprintf(listNew, w.Large, w.LargePods), fmt.Sprintf(listAgain, w.Large, w.LargePods), fmt.Sprintf(listCPU, w.Large, w.LargePods))
}

func (w *world) measureView(ctx context.Context, view string, pods int, asNew, again, cpu string) error {
	// Connections and caches are those of a process that runs for some time.
	if _, err := w.list(ctx, w.hub.newUser(), view, pods); err != nil {
		return err
	}
	w.warned = 0
	if err := w.order(ctx, "/asked", &asked{}); err != nil {
		return err
	}
	for range rounds {
		token := w.hub.newUser()
		took, err := w.list(ctx, token, view, pods)
		if err != nil {
			return err
		}
		w.add(asNew, took.Seconds())
		before, err := w.used()
		if err != nil {
			return err
		}
		if took, err = w.list(ctx, token, view, pods); err != nil {
			return err
		}
		w.add(again, took.Seconds())
		after, err := w.used()
		if err != nil {
			return err
		}
		w.add(cpu, (after - before).Seconds())
	}
	var counted asked
	if err := w.order(ctx, "/asked", &counted); err != nil {
		return err
	}
	w.add(warnedPages, float64(w.warned))
	w.add(askedLive, float64(counted.Lists))
	return nil
}

// used is the CPU time of index and proxy API.
func (w *world) used() (time.Duration, error) {
	index, err := w.index.cpu()
	if err != nil {
		return 0, err
	}
	api, err := w.api.cpu()
	return index + api, err
}

// searches are how often each word is searched for: few enough for the clusters' decisions to last.
const searches = 100

// measureSearch searches by one word, and counts.
func measureSearch(ctx context.Context, w *world) error {
	for _, word := range []struct {
		text, which string
		hits        int
	}{{wordOfAll, ofAllRows, 100}, {wordOfSome, ofSomeRows, min(100, w.rows/someOf)}, {wordOfOne(w.rows / 2), ofOneRow, 1}} {
		token := w.hub.newUser()
		var found indexapi.SearchAnswer
		took, err := w.search(ctx, token, word.text, "", &found)
		if err != nil {
			return err
		}
		w.add(searchNew, took.Seconds()*1000)
		if len(found.Hits) < word.hits {
			return fmt.Errorf("a search for %q has %d hits, want %d", word.text, len(found.Hits), word.hits)
		}
		var times samples
		// Decisions last ten seconds; a user whose last search was earlier waits for new ones, as in searchNew.
		for began := time.Now(); len(times) < searches && time.Since(began) < 8*time.Second; {
			if took, err = w.search(ctx, token, word.text, "", &found); err != nil {
				return err
			}
			times = append(times, took.Seconds()*1000)
		}
		w.note(fmt.Sprintf("search %s: %d searches", word.which, len(times)))
		w.add(fmt.Sprintf(search50, word.which), times.quantile(0.5))
		w.add(fmt.Sprintf(search99, word.which), times.quantile(0.99))
	}
	token := w.hub.newUser()
	for i := range 1 + rounds {
		for _, words := range []string{"", wordOfAll} {
			var counted indexapi.CountAnswer
			took, err := w.search(ctx, token, words, "cluster,status", &counted)
			if err != nil {
				return err
			}
			if i == 0 {
				continue
			}
			w.add(map[bool]string{true: countAll, false: countWord}[words == ""], took.Seconds()*1000)
			w.add(countMissing, float64(int64(w.rows)-counted.Total))
		}
	}
	return nil
}

// measureMemory compares what the index takes with rows and without, after it was asked.
func measureMemory(_ context.Context, w *world) error {
	now, err := w.index.resident()
	w.add(residentBytes, (now-w.withoutRows)/float64(w.rows))
	return err
}

// burst is how many changes are sent as fast as they are taken: some of each of many clusters.
const burstClusters, burstEach = 1000, 50

// measureChanges sends changes of a row each, as agents do that watch.
func measureChanges(ctx context.Context, w *world) error {
	before, err := w.metric(ctx, changesMetric, put)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := w.order(ctx, fmt.Sprintf("/burst?clusters=%d&each=%d", burstClusters, burstEach), nil); err != nil {
		return err
	}
	many := float64(min(len(w.all), burstClusters) * burstEach)
	if err := w.awaitMetric(ctx, before+many, changesMetric, put); err != nil {
		return err
	}
	w.add(changeRate, many/time.Since(began).Seconds())
	return nil
}

// Changes beside those whose way is measured, a second, and how many ways are.
const steadyRate, probes = 200, 100

// measureLag has clusters change rows, and asks the index for each until it is there.
func measureLag(ctx context.Context, w *world) error {
	if err := w.order(ctx, fmt.Sprintf("/steady?rate=%d", steadyRate), nil); err != nil {
		return err
	}
	defer func() { _ = w.order(ctx, "/stop", nil) }()
	var times samples
	for i := range probes {
		took, err := w.probe(ctx, i*len(w.all)/probes)
		if err != nil {
			return err
		}
		times = append(times, took.Seconds())
	}
	w.add(lag50, times.quantile(0.5))
	w.add(lag99, times.quantile(0.99))
	return nil
}

// probe returns how long a change of one cluster takes to be in an answer of the index.
func (w *world) probe(ctx context.Context, cluster int) (time.Duration, error) {
	m := w.all[cluster]
	ask := func() (table []byte, err error) {
		request := &indexapi.TablesRequest{Caller: indexapi.Caller{Name: "prober"}, Resource: kinds[thePods].Resource, Version: "v1", Metadata: true,
			FieldSelector: "metadata.name=" + m.keyOf(&kinds[thePods], 0).Name, Clusters: []indexapi.Cluster{{Name: m.name, UID: uidOf(m.name)}}}
		err = w.asProxyAPI.Tables(ctx, request, func(int) error { return nil }, func(head *indexapi.Head, answer []byte) error {
			if head.Unindexed != "" {
				return fmt.Errorf("the index does not answer for %s: %s", head.Cluster, head.Unindexed)
			}
			table = answer
			return nil
		})
		return table, err
	}
	if _, err := ask(); err != nil { // the cluster decides
		return 0, err
	}
	var change changed
	if err := w.order(ctx, fmt.Sprintf("/change?cluster=%d", cluster), &change); err != nil {
		return 0, err
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		table, err := ask()
		if err != nil {
			return 0, err
		}
		if bytes.Contains(table, fmt.Appendf(nil, `"resourceVersion":"%d"`, change.Version)) {
			return time.Since(change.At), nil
		}
	}
	return 0, fmt.Errorf("a change of %s is not in the index", change.Cluster)
}

// measureRestart stops the index and starts it again over its file.
func measureRestart(ctx context.Context, w *world) error {
	w.stopIndex()
	if err := w.order(ctx, "/asked", &asked{}); err != nil {
		return err
	}
	if err := w.startIndex("index.db"); err != nil {
		return err
	}
	if err := w.await(ctx, "the index's port", func() error {
		conn, err := net.Dial("tcp", w.indexSpec.address())
		if err == nil {
			conn.Close()
		}
		return err
	}); err != nil {
		return err
	}
	w.add(storeRead, time.Since(w.index.began).Seconds())
	for _, part := range []struct {
		name  string
		share float64
	}{{halfCurrent, 0.5}, {allCurrent, 1}} {
		if err := w.awaitMetric(ctx, part.share*float64(len(w.all)), clustersMetric, current); err != nil {
			return err
		}
		w.add(part.name, time.Since(w.index.began).Seconds())
	}
	var sent asked
	err := w.order(ctx, "/asked", &sent)
	w.add(sentAgain, float64(sent.Resent))
	return err
}

// measureLive lists the same clusters by a view that asks them.
func measureLive(ctx context.Context, w *world) error {
	token := w.hub.newUser()
	for _, name := range []string{liveFirst, liveAgain} {
		took, err := w.list(ctx, token, viewLive, w.Clusters*w.Pods)
		if err != nil {
			return err
		}
		w.add(fmt.Sprintf(name, w.Clusters, w.Pods), took.Seconds())
	}
	return nil
}
