package soak

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// sample is what a process took at a moment.
type sample struct {
	// at is the same for all processes of a kind on a cluster that were looked at together.
	at   time.Time
	kind string
	// process tells processes apart: one that was started again is another one.
	process string
	took    usage
}

// usage is what a process takes, by the index of a measure.
type usage [len(measures)]float64

// measure is something that must not grow.
type measure struct {
	name string
	// unit divides what is shown.
	unit float64
	// least is the growth that is never a failure, and share that of what it was before.
	least, share float64
	// together says that connections take it: they move to those that survive, so it is the
	// sum of all processes of a kind that counts.
	together bool
}

// measures are what the table has. See the package comment for why these limits.
var measures = [...]measure{
	{"resident, MiB", 1 << 20, 6 << 20, 0.10, false},
	{"heap, MiB", 1 << 20, 3 << 20, 0.15, false},
	{"goroutines of all", 1, 20, 0.05, true},
	{"open files of all", 1, 10, 0.05, true},
	{"sockets of all", 1, 10, 0.05, true},
}

const (
	resident = iota
	heap
	goroutines
	files
	sockets
)

// quarters are the medians of a measure in each quarter of the time.
type quarters [4]float64

// atLeast is the part of the growth since the second quarter that each of the two quarters
// after it must have: a step, for a client that came, has all of it in one.
const atLeast = 0.2

// grows reports whether a measure has grown since the second quarter as a leak grows: in both
// quarters after it, and by more than its limit. The first quarter is not looked at.
func (m measure) grows(q quarters) bool {
	growth := q[3] - q[1]
	return growth > m.limit(q) && q[2]-q[1] > atLeast*growth && q[3]-q[2] > atLeast*growth
}

func (m measure) limit(q quarters) float64 { return max(m.least, m.share*q[1]) }

// trend is a kind of process over the time of a run.
type trend struct {
	kind string
	// processes are how many of them survived the run; 0 means that none did, and what is
	// compared is whichever ran.
	processes int
	of        [len(measures)]quarters
}

// trendsOf are the trends of all kinds between two times, by name. A kind of which there is
// no sample in a quarter is an error: it could not fail.
func trendsOf(samples []sample, began, ended time.Time) ([]trend, error) {
	quarter := func(at time.Time) int {
		return min(int(4*float64(at.Sub(began))/float64(ended.Sub(began))), 3)
	}
	kinds := map[string][]sample{}
	for _, s := range samples {
		if !s.at.Before(began) && !s.at.After(ended) {
			kinds[s.kind] = append(kinds[s.kind], s)
		}
	}
	var trends []trend
	for kind, all := range kinds {
		t := trend{kind: kind}
		sums := sumsOf(all)
		survived := survivors(all, quarter)
		if t.processes = len(survived); t.processes > 0 {
			all = slices.DeleteFunc(all, func(s sample) bool { return !survived[s.process] })
		}
		for i := range measures {
			var values [4][]float64
			of := all
			if measures[i].together {
				of = sums
			}
			for _, s := range of {
				values[quarter(s.at)] = append(values[quarter(s.at)], s.took[i])
			}
			for q := range values {
				if len(values[q]) == 0 {
					return nil, fmt.Errorf("quarter %d has no sample of the %s", q+1, kind)
				}
				t.of[i][q] = median(values[q])
			}
		}
		trends = append(trends, t)
	}
	slices.SortFunc(trends, func(a, b trend) int { return cmp.Compare(a.kind, b.kind) })
	return trends, nil
}

// sumsOf are what all processes took together at each moment.
func sumsOf(all []sample) (sums []sample) {
	index := map[time.Time]int{}
	for _, s := range all {
		i, ok := index[s.at]
		if !ok {
			i, index[s.at] = len(sums), len(sums)
			sums = append(sums, sample{at: s.at})
		}
		for measure, took := range s.took {
			sums[i].took[measure] += took
		}
	}
	return sums
}

// survivors are the processes that were there in each quarter.
func survivors(all []sample, quarter func(time.Time) int) map[string]bool {
	seen := map[string][4]bool{}
	for _, s := range all {
		in := seen[s.process]
		in[quarter(s.at)] = true
		seen[s.process] = in
	}
	survived := map[string]bool{}
	for process, in := range seen {
		if in == [4]bool{true, true, true, true} {
			survived[process] = true
		}
	}
	return survived
}

func median(values []float64) float64 {
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

// growing names what grows.
func growing(trends []trend) (leaks []string) {
	for _, t := range trends {
		for i, m := range measures {
			if m.grows(t.of[i]) {
				leaks = append(leaks, fmt.Sprintf("%s of the %s: medians of the quarters are %s", m.name, t.kind, m.text(t.of[i])))
			}
		}
	}
	return leaks
}

func (m measure) text(q quarters) string {
	var texts []string
	for _, value := range q {
		texts = append(texts, short(value/m.unit))
	}
	return strings.Join(texts, " | ")
}

func short(value float64) string {
	if math.Abs(value) >= 100 || value == math.Trunc(value) {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.1f", value)
}

// tableOf is a table in Markdown.
func tableOf(trends []trend) string {
	var b strings.Builder
	b.WriteString("| process | survived | median of | 1st quarter | 2nd | 3rd | 4th | 4th − 2nd | fails above |  |\n|---|---:|---|---:|---:|---:|---:|---:|---:|---|\n")
	for _, t := range trends {
		survived := fmt.Sprint(t.processes)
		if t.processes == 0 {
			survived = "none"
		}
		for i, m := range measures {
			verdict := ""
			if m.grows(t.of[i]) {
				verdict = "GROWS"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", t.kind, survived, m.name, m.text(t.of[i]), short((t.of[i][3]-t.of[i][1])/m.unit), short(m.limit(t.of[i])/m.unit), verdict)
		}
	}
	return b.String()
}
