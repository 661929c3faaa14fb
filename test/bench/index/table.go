package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/test/bench/ground"
)

// rounds is how often lists and counts are measured; the median counts.
const rounds = 3

// Names of what is measured. Some have numbers of clusters, pods or rows.
const (
	connected     = "an index and its clusters, without rows: all are current after, s"
	idleMemory    = "idle: memory of the index's process ÷ clusters, KiB"
	idleCPU       = "idle: CPU of the index's process ÷ clusters, ms/s"
	snapshot      = "snapshot of %d rows by an index that is empty, from its start, s"
	snapshotCPU   = "snapshot: CPU s of the index"
	onDisk        = "bytes on disk ÷ rows"
	listNew       = "kubectl get pods -A, %d clusters × %d pods: of a user who has no decisions yet, s"
	listAgain     = "kubectl get pods -A, %d clusters × %d pods: with decisions remembered, s"
	listCPU       = "kubectl get pods -A, %d clusters × %d pods: with decisions remembered, CPU s of index and proxy API"
	liveFirst     = "kubectl get pods -A, %d clusters × %d pods: live, the first time, s"
	liveAgain     = "kubectl get pods -A, %d clusters × %d pods: live, again, s"
	warnedPages   = "kubectl get pods -A, Indexed: pages with Warnings"
	askedLive     = "kubectl get pods -A, Indexed: lists that clusters were asked for themselves"
	searchNew     = "search: of a user who has no decisions yet, ms"
	search50      = "search by a word of %s, first 100, p50 ms"
	search99      = "search by a word of %s, first 100, p99 ms"
	countAll      = "count of all rows by cluster and status, ms"
	countWord     = "count of a word of all rows by cluster and status, ms"
	countMissing  = "rows that a count left out, because clusters had not decided within 3 s"
	residentBytes = "bytes of the index's memory ÷ rows, beyond those without rows"
	changeRate    = "changes of one row each, a second"
	lag50         = "change of a cluster until it is in an answer, beside 200 others a second, p50 s"
	lag99         = "change of a cluster until it is in an answer, beside 200 others a second, p99 s"
	storeRead     = "restart: the store is read after, s"
	halfCurrent   = "restart: half of the clusters are current after, s"
	allCurrent    = "restart: all clusters are current after, s"
	sentAgain     = "restart: rows that clusters sent again"

	ofAllRows, ofSomeRows, ofOneRow = "all rows", "a row in 1,000", "one row"
)

// peers are figures of others, and what ours are of.
const peers = `The index, the proxy API, the connections between them and to the agents, and SQLite on this machine's disk are as on a hub; everything shares its
processors. Simulated are the hub's kube-apiserver, which answers at once, and in one process the proxy server and the agents: they speak the tunnel's and the feed's
protocols with a certificate of each cluster, allow every question at once, and have the messages of a snapshot ready. So "live" lacks a proxy server, agents and
kube-apiservers; make scale has them. Agents say every 10 s that they have sent all, and a cluster counts as current from then on.
A list is that of kubectl: a Table in pages of 500, by a user of the hub. Times of lists and counts are medians of 3.
Figures of others, by their own account or on other machines: Karmada 1.18 keeps 141 to 236 KiB of memory for each object (measured beside ours);
ACM's search-indexer reports 276 to 298 ms for a query by kind over 450,000 rows (its benchmark.md); users of Clusterpedia report seconds for a list of one busy
resource (its #488).`

// target is what a figure must reach.
type target struct {
	limit   float64
	atLeast bool
}

func atMost(limit float64) target { return target{limit: limit} }

// targets are by the names of figures. Others are for reading.
func targets(s shape) map[string]target {
	all := map[string]target{
		idleCPU: atMost(0.1), onDisk: atMost(1536), residentBytes: atMost(64), countAll: atMost(500), countWord: atMost(500), countMissing: atMost(0),
		changeRate: {5000, true}, lag50: atMost(0.2), lag99: atMost(1), storeRead: atMost(2), halfCurrent: atMost(10), allCurrent: atMost(60), sentAgain: atMost(0),
		idleMemory: atMost(100), warnedPages: atMost(0), askedLive: atMost(0), fmt.Sprintf(snapshot, s.total()): atMost(90),
		fmt.Sprintf(listNew, s.Clusters, s.Pods): atMost(4), fmt.Sprintf(listAgain, s.Clusters, s.Pods): atMost(2), fmt.Sprintf(listAgain, s.Large, s.LargePods): atMost(0.4),
	}
	for _, which := range []string{ofAllRows, ofSomeRows, ofOneRow} {
		all[fmt.Sprintf(search50, which)], all[fmt.Sprintf(search99, which)] = atMost(50), atMost(200)
	}
	return all
}

func (t target) String() string {
	if t.atLeast {
		return fmt.Sprintf("≥ %g", t.limit)
	}
	return fmt.Sprintf("≤ %g", t.limit)
}

func (t target) verdict(value float64) string {
	if t.atLeast && value >= t.limit || !t.atLeast && value <= t.limit {
		return "met"
	}
	return "MISSED"
}

// samples are values of one figure.
type samples []float64

func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[int(q*float64(len(sorted)-1))]
}

// results are what was measured so far.
type results struct {
	out    io.Writer
	ground ground.Ground
	began  time.Time
	// order has the figures' names, and values what they were in each round.
	order  []string
	values map[string]samples
	notes  []string
	failed []string
}

func (r *results) say(text string) {
	fmt.Fprintf(r.out, "[%s] %s\n", time.Since(r.began).Round(time.Second), text)
}

func (r *results) add(name string, value float64) {
	if !slices.Contains(r.order, name) {
		r.order = append(r.order, name)
	}
	r.values[name] = append(r.values[name], value)
	r.say(fmt.Sprintf("  %s: %.4g", name, value))
}

// note adds a line below the table.
func (r *results) note(text string) { r.notes = append(r.notes, text) }

// text is the table, and what it is of.
func (r *results) text(s shape) string {
	var b strings.Builder
	awake := "no"
	if os.Getenv("CORES_AWAKE") != "" {
		awake = "yes"
	}
	fmt.Fprintf(&b, "%s, %s, %d processors, %s, cores kept awake: %s; %d rows of %d clusters and of %d large ones.\n\n", r.began.UTC().Format("2006-01-02 15:04 UTC"), r.ground, runtime.NumCPU(), runtime.Version(), awake, s.total(), s.Clusters, s.Large)
	b.WriteString("| row | seen | target | |\n|---|---:|---|---|\n")
	wanted := targets(s)
	for _, name := range r.order {
		value, limit, verdict := r.values[name].quantile(0.5), "–", ""
		if isWorst(name) {
			value = slices.Max(r.values[name])
		}
		if t, ok := wanted[name]; ok {
			limit, verdict = t.String(), t.verdict(value)
		}
		fmt.Fprintf(&b, "| %s | %.4g | %s | %s |\n", name, value, limit, verdict)
	}
	fmt.Fprintf(&b, "\n%s\n", peers)
	for _, line := range slices.Concat(r.notes, r.failed) {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// isWorst reports whether a figure must hold each time.
func isWorst(name string) bool {
	return name == warnedPages || name == askedLive || name == countMissing
}

// write writes the files.
func (r *results) write(file string, s shape) error {
	raw, err := json.MarshalIndent(map[string]any{"date": r.began.Format(time.DateOnly), "cpus": runtime.NumCPU(), "go": runtime.Version(), "ground": r.ground, "shape": s, "rounds": r.values, "failed": r.failed}, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file+".json", append(raw, '\n'), 0o644), os.WriteFile(file+".txt", []byte(r.text(s)), 0o644))
}
