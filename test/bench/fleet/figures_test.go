//go:build benchfleet

package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
)

// Names of what is measured. Those of lists continue with a form.
const (
	labLists           = "6,000 pods of 3 clusters"
	simulatedLists     = "6,000 pods of 3 simulated members"
	simulatedLongLists = "60,000 pods of 3 simulated members"
	getSingle          = "GET NAME@CLUSTER, %d at a time, per second; single-cluster endpoint"
	getQualified       = "GET NAME@CLUSTER, %d at a time, per second"
	getPlain           = "GET NAME over 3 clusters, %d at a time, per second"
	eventLag           = "event of one watch, p50 ms; single-cluster endpoint"
	watchesP50         = "50 watches, 20 changes/s, lag p50 ms"
	watchesP99         = "50 watches, 20 changes/s, lag p99 ms"
	watchesCut         = "50 watches, 20 changes/s, ended by the server"
	informerSynced     = "informer of 6,000 pods, until HasSynced, s"
	informerHeld       = "informer of 6,000 pods, holds then"
	informerCPU        = "informer of 6,000 pods, CPU s until then"
	frozenList         = "one cluster frozen, %s, first pod of the slowest answer, s"
	frozenWhole        = "one cluster frozen, %s, whole list, longest, s"
	firstRow           = "first row of 50 simulated members, one silent, %s, longest, ms"
	farList            = "500 pods of 50 simulated members 20 ms away, ms; one such member"
	watchMemory        = "watch of 50 simulated members, 5,000 pods, at rest, MiB each"
	watchBegins        = "watch of 50 simulated members, 5,000 pods, largest while 20 begin, MiB each"
	manyList           = "500 simulated members, 10 pods each, in pages of 500, s"
	manyAsked          = "500 simulated members, lists of the one that is asked most"
	manyCPU            = "500 simulated members, CPU s per 1,000"
	manyMemory         = "500 simulated members, largest memory growth, MiB"
)

// fleetFigure is a row of the table.
type fleetFigure struct {
	name string
	// limit is what the view must reach: more or less than it, itself or as a multiple of
	// direct access. A figure without kind is for reading.
	kind  targetKind
	limit float64
	// worst is shown of a figure that holds every time, and the median of others.
	worst bool
	// karmada is what Karmada 1.18.2 has; see karmadaNote.
	karmada string
}

type targetKind string

const (
	timesAtMost  targetKind = "≤ %g × direct"
	timesAtLeast targetKind = "≥ %g × direct"
	isAtMost     targetKind = "≤ %g"
	isAtLeast    targetKind = "≥ %g"
)

// karmadaNote says where Karmada's figures are from.
const karmadaNote = `Karmada: 1.18.2 with karmada-search's proxy on 2026-11-22, on a machine of the same size, with pods of the same size of 3 clusters, beside direct
access in the same run. "×" is a multiple of direct access.`

// tableNote says what is compared with what.
const tableNote = `direct: the same requests to each cluster, all at the same time, or what follows a semicolon. Simulated members are HTTP servers
in a process of their own without TLS, and the view of them is package fleetview in another; the rest is a lab of whole clusters, with their agents.
CPU and memory are our processes': of lists all of them, of memory the proxy API or the view's. Answers are not compressed.
A frozen cluster's agents are stopped (SIGSTOP); the view's timeout is 5 s, and half a second is for the others.
An answer without a limit begins when all have answered, or half of the timeout after the others.`

// fleetFigures are in the order of the table.
func fleetFigures() []fleetFigure {
	var all []fleetFigure
	for _, form := range listForms() {
		all = append(all, fleetFigure{name: labLists + ", " + form.name + ", ms", kind: timesAtMost, limit: 1.5, karmada: "× " + form.karmada})
	}
	for _, form := range listForms() {
		all = append(all, fleetFigure{name: labLists + ", " + form.name + ": CPU s per 1,000", kind: isAtMost, limit: 0.12, karmada: form.cpu})
	}
	all = append(all, fleetFigure{name: labLists + ": largest memory growth, MiB", kind: isAtMost, limit: 32, worst: true, karmada: "to 13 GiB"})
	for _, lists := range []string{simulatedLists, simulatedLongLists} {
		all = append(all, fleetFigure{name: lists + ": largest memory growth, MiB", kind: isAtMost, limit: 32, worst: true})
		for _, form := range listForms() {
			all = append(all, fleetFigure{name: lists + ", " + form.name + ", ms"}, fleetFigure{name: lists + ", " + form.name + ": CPU s per 1,000"})
		}
	}
	for _, n := range []int{1, 16} {
		karmada := map[int]string{1: "× 0.25", 16: "× 0.23"}[n]
		all = append(all, fleetFigure{name: fmt.Sprintf(getSingle, n), kind: timesAtLeast, limit: 0.95},
			fleetFigure{name: fmt.Sprintf(getQualified, n), karmada: karmada}, fleetFigure{name: fmt.Sprintf(getPlain, n), kind: timesAtLeast, limit: 0.4, karmada: karmada})
	}
	all = append(all,
		fleetFigure{name: watchesP50, kind: timesAtMost, limit: 2, karmada: "× 2.8"},
		fleetFigure{name: watchesP99, kind: timesAtMost, limit: 2, karmada: "× 4.9"},
		fleetFigure{name: watchesCut, kind: isAtMost, limit: 0, worst: true, karmada: "49 in one round of 7"},
		fleetFigure{name: eventLag, kind: timesAtMost, limit: 1.2},
		fleetFigure{name: informerSynced, kind: timesAtMost, limit: 1.5, karmada: "not in 120 s"},
		fleetFigure{name: informerHeld, kind: isAtLeast, limit: 6000, karmada: "0; 6,207 of 30,000"},
		fleetFigure{name: informerCPU},
	)
	within := viewTimeout.Seconds() + 0.5
	frozen, first := []listForm{listForms()[0], listForms()[2]}, []listForm{listForms()[2], listForms()[1]}
	for _, form := range frozen {
		all = append(all, fleetFigure{name: fmt.Sprintf(frozenList, form.name), kind: isAtMost, limit: within, worst: true, karmada: "500 after 21 to 32"},
			fleetFigure{name: fmt.Sprintf(frozenWhole, form.name), worst: true})
	}
	for _, form := range first {
		all = append(all, fleetFigure{name: fmt.Sprintf(firstRow, form.name), kind: isAtMost, limit: viewTimeout.Seconds() * 1e3, worst: true})
	}
	return append(all,
		fleetFigure{name: farList, kind: timesAtMost, limit: 1.3},
		fleetFigure{name: watchMemory, kind: isAtMost, limit: 2.5, worst: true},
		fleetFigure{name: watchBegins, worst: true},
		fleetFigure{name: manyList, kind: isAtMost, limit: 5},
		fleetFigure{name: manyAsked, kind: isAtMost, limit: 1, worst: true},
		fleetFigure{name: manyCPU}, fleetFigure{name: manyMemory, worst: true},
	)
}

// fleetResults are by figure and side, some a round.
type fleetResults struct {
	values map[string]map[string][]float64
	notes  []string
}

func (r *fleetResults) add(figure, side string, value float64) {
	if r.values[figure] == nil {
		r.values[figure] = map[string][]float64{}
	}
	r.values[figure][side] = append(r.values[figure][side], value)
}

// noteOnce adds a line below the table, unless it is there.
func (r *fleetResults) noteOnce(format string, values ...any) {
	if note := fmt.Sprintf(format, values...); !slices.Contains(r.notes, note) {
		r.notes = append(r.notes, note)
	}
}

// value is what the table shows of a figure; ok is false if it was not measured.
func (r *fleetResults) value(f fleetFigure, side string) (value float64, ok bool) {
	values := r.values[f.name][side]
	switch {
	case len(values) == 0:
		return 0, false
	case f.worst:
		return slices.Max(values), true
	}
	return load.Median(values), true
}

// verdict says whether a figure of the view is as it must be.
func (f fleetFigure) verdict(base, value float64) string {
	met := true
	switch f.kind {
	case timesAtMost:
		met = value <= f.limit*base
	case timesAtLeast:
		met = value >= f.limit*base
	case isAtMost:
		met = value <= f.limit
	case isAtLeast:
		met = value >= f.limit
	default:
		return ""
	}
	if met {
		return "met"
	}
	return "MISSED"
}

// table has a line for each figure that was measured.
func (r *fleetResults) table() string {
	var out strings.Builder
	fmt.Fprintln(&out, "| row | direct | view | ratio | target | | Karmada |\n|---|---:|---:|---:|---|---|---|")
	for _, f := range fleetFigures() {
		value, ok := r.value(f, ofView)
		if !ok {
			continue
		}
		base, compared := r.value(f, direct)
		baseText, ratio, target := "–", "–", "–"
		if compared {
			baseText = fmt.Sprintf("%.4g", base)
		}
		if compared && base > 0 {
			ratio = fmt.Sprintf("%.2f", value/base)
		}
		if f.kind != "" {
			target = fmt.Sprintf(string(f.kind), f.limit)
		}
		fmt.Fprintf(&out, "| %s | %s | %.4g | %s | %s | %s | %s |\n", f.name, baseText, value, ratio, target, f.verdict(base, value), cmp.Or(f.karmada, "–"))
	}
	return out.String()
}

func (r *fleetResults) write(t *testing.T) {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %s, %d processors, %s, cores kept awake: %s, %d rounds: the median, or the worst of them where the row says longest, slowest, largest, most or at rest.\n\n%s\n",
		time.Now().Format(time.DateOnly), cmp.Or(os.Getenv("BENCH_GROUND"), "for a glance"), runtime.NumCPU(), runtime.Version(), cmp.Or(os.Getenv("CORES_AWAKE"), "no"), load.Rounds, r.table())
	fmt.Fprintf(&out, "%s\n%s\n", tableNote, karmadaNote)
	for _, note := range r.notes {
		fmt.Fprintln(&out, note)
	}
	t.Log("\n" + out.String())
	file := os.Getenv("BENCH_OUT")
	if file == "" {
		return
	}
	raw, err := json.MarshalIndent(map[string]any{"date": time.Now().Format(time.DateOnly), "cpus": runtime.NumCPU(), "go": runtime.Version(), "ground": os.Getenv("BENCH_GROUND"), "rounds": r.values}, "", " ")
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
