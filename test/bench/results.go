package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"open-cluster-management.io/cluster-proxy/test/bench/ground"
)

// results are what was measured so far.
type results struct {
	options
	begun bool
	date  time.Time
	on    string // the machine
	// ground is the commit, and what else the machine did when it began.
	ground ground.Ground
	// values are by row, subject and figure, one a round.
	values map[string]map[string]map[string][]float64
	// failures are by row and subject.
	failures map[string]map[string]error
	done     []row
}

func newResults(o options, on ground.Ground) *results {
	return &results{options: o, ground: on, date: time.Now(), on: machine(), values: map[string]map[string]map[string][]float64{}, failures: map[string]map[string]error{}}
}

func (all *results) add(row, subject string, s sample) {
	if all.values[row] == nil {
		all.values[row] = map[string]map[string][]float64{}
	}
	if all.values[row][subject] == nil {
		all.values[row][subject] = map[string][]float64{}
	}
	for figure, value := range s {
		all.values[row][subject][figure] = append(all.values[row][subject][figure], value)
	}
}

func (all *results) fail(row, subject string, err error) {
	if all.failures[row] == nil {
		all.failures[row] = map[string]error{}
	}
	all.failures[row][subject] = err
}

func (all *results) failed(row, subject string) bool { return all.failures[row][subject] != nil }

// skip notes that a row could not be measured at all.
func (all *results) skip(r row, err error) {
	all.fail(r.name, "", err)
	all.done = append(all.done, r)
}

// median is that of all rounds; ok is false if the figure was not measured, or
// the subject failed in a round.
func (all *results) median(row, subject, figure string) (value float64, ok bool) {
	values := slices.Clone(all.values[row][subject][figure])
	if len(values) == 0 || all.failed(row, subject) {
		return 0, false
	}
	return quantile(values, 0.5), true
}

// quantile interpolates between the two values that are nearest.
func quantile(values []float64, q float64) float64 {
	slices.Sort(values)
	at := q * float64(len(values)-1)
	below := int(at)
	above := min(below+1, len(values)-1)
	return values[below] + (at-float64(below))*(values[above]-values[below])
}

// columns are the subjects that are measured, with the processes of an earlier commit
// or without.
func columns(withBase bool) []string {
	if withBase {
		return []string{direct, stockClient, baseStockClient, ourDialer, baseDialer}
	}
	return []string{direct, bareRelay, konnectivitySystem, stockClient, ourDialer}
}

func (all *results) columns() []string { return columns(all.base != "") }

// head is the machine, and the head of the table.
func (all *results) head() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, medians of %d rounds, %s\n", all.date.Format("2006-01-02 15:04 MST"), all.ground, all.rounds, all.on)
	fmt.Fprintf(&b, "✓ and ✗: target met or missed; the lines below the table say by how much. –: there is no such figure.\n")
	fmt.Fprintf(&b, "At 20ms and 80ms: a relay that ends TCP on both sides delays the bytes, so that the kernel's windows, slow start and losses are no part of it.\n")
	if all.base != "" {
		fmt.Fprintf(&b, "base: server and agent of commit %s with today's clients. × base: the median of today's figure ÷ base's, round by round.\n", all.base)
	}
	b.WriteByte('\n')
	line := func(cells ...string) {
		b.WriteString("| " + pad(cells[0], 34))
		for _, cell := range cells[1:] {
			b.WriteString(" | " + pad(cell, 18))
		}
		b.WriteString(" |\n")
	}
	line(append([]string{""}, all.columns()...)...)
	line("---", "---", "---", "---", "---", "---")
	return b.String()
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s))) }

// machine says what all this ran on, from the operating system.
func machine() string {
	model := runtime.GOARCH
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	awake := ""
	if os.Getenv("CORES_AWAKE") != "" {
		awake = ", cores kept awake (hack/awake.sh)"
	}
	return fmt.Sprintf("%d × %s, %s, %s%s", runtime.NumCPU(), model, runtime.GOOS, runtime.Version(), awake)
}

// lines are those of the table that a row has, one a figure.
func (all *results) lines(r row) string {
	if !slices.ContainsFunc(all.done, func(other row) bool { return other.name == r.name }) {
		all.done = append(all.done, r)
	}
	if err := all.failures[r.name][""]; err != nil {
		return "| " + pad(r.name, 34) + " | not measured: " + err.Error() + " |\n"
	}
	var b strings.Builder
	for _, figure := range all.figures(r) {
		b.WriteString("| " + pad(r.name+", "+figure, 34))
		for _, subject := range all.columns() {
			b.WriteString(" | " + pad(all.cell(r, subject, figure), 18))
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// figures are those that a row has.
func (all *results) figures(r row) []string {
	names := map[string]bool{}
	for _, of := range all.values[r.name] {
		for figure := range of {
			names[figure] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (all *results) cell(r row, subject, figure string) string {
	mark := ""
	for _, p := range targetFigures {
		if p.row == r.name && p.subject == subject && p.figure == figure {
			mark = map[string]string{"met": " ✓", "missed": " ✗"}[p.verdict(all).word]
		}
	}
	switch value, ok := all.median(r.name, subject, figure); {
	case ok:
		if ratio, ok := all.toBase(r.name, subject, figure); ok {
			mark += fmt.Sprintf(" (%s × base)", number(ratio.median))
		}
		return number(value) + mark
	case errors.Is(all.failures[r.name][subject], errEndless):
		return fmt.Sprintf("no end in %s", sampleLimit) + mark
	case all.failed(r.name, subject):
		return "failed" + mark
	}
	return "–"
}

// number has three digits that count, and no exponent.
func number(v float64) string {
	if v >= 1000 {
		digits := fmt.Sprintf("%.0f", v)
		return digits[:len(digits)-3] + "," + digits[len(digits)-3:]
	}
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// printVerdicts writes for each target figure whether it was met.
func (all *results) printVerdicts(out io.Writer) {
	fmt.Fprintln(out)
	for _, p := range targetFigures {
		if v := p.verdict(all); v.word != "" {
			fmt.Fprintln(out, v)
		}
	}
	all.printBase(out)
	for _, r := range all.done {
		for _, subject := range slices.Sorted(maps.Keys(all.failures[r.name])) {
			fmt.Fprintf(out, "%s, %s: %v\n", r.name, subject, all.failures[r.name][subject])
		}
	}
}

// save writes the files that were asked for.
func (all *results) save() error {
	if all.out == "" {
		return nil
	}
	var text bytes.Buffer
	text.WriteString(all.head())
	for _, r := range all.done {
		text.WriteString(all.lines(r))
	}
	all.printVerdicts(&text)
	if err := os.WriteFile(all.out+".txt", text.Bytes(), 0o644); err != nil {
		return err
	}
	failures := map[string]map[string]string{}
	for row, of := range all.failures {
		failures[row] = map[string]string{}
		for subject, err := range of {
			failures[row][subject] = err.Error()
		}
	}
	raw, err := json.MarshalIndent(map[string]any{
		"date": all.date.Format(time.RFC3339), "machine": all.on, "ground": all.ground, "base": all.base, "rounds": all.values, "failures": failures,
	}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(all.out+".json", append(raw, '\n'), 0o644)
}
