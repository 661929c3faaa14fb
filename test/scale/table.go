package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/test/lab"
)

// column is the figures of one number of clusters.
type column struct {
	Clusters int    `json:"clusters"`
	Ran      string `json:"ran"` // when, of which commit, on which machine
	// Again is Ran of groups of rows that were measured by runs of their own.
	Again  map[string]string `json:"again,omitempty"`
	Rows   []row             `json:"rows"`
	Failed []failure         `json:"failed,omitempty"`

	some []string // the groups so far, if not all are measured
}

type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

type failure struct {
	Group  string `json:"group"`
	Reason string `json:"reason"`
}

func newColumn(clusters int) *column {
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return &column{Clusters: clusters, Ran: fmt.Sprintf("%s, commit %s, OCM %s, %s", time.Now().Format(time.DateOnly), strings.TrimSpace(string(commit)),
		cmp.Or(os.Getenv(lab.ReleaseVariable), string(lab.OCMCurrent)), machine())}
}

// machine says what it runs on.
func machine() string {
	of := func(file, key string) string {
		raw, err := os.ReadFile(file)
		if err != nil {
			return ""
		}
		for line := range strings.Lines(string(raw)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	memory, _ := strconv.Atoi(strings.TrimSuffix(of("/proc/meminfo", "MemTotal"), " kB"))
	return fmt.Sprintf("%d processors (%s), %d GiB, %s, %s", runtime.NumCPU(), of("/proc/cpuinfo", "model name"), memory>>20, runtime.GOOS, runtime.Version())
}

// add sets a figure, and prints it.
func (w *world) add(name string, value float64) {
	w.table.Rows = slices.DeleteFunc(w.table.Rows, func(r row) bool { return r.Name == name })
	w.table.Rows = append(w.table.Rows, row{name, value})
	w.say(fmt.Sprintf("  %s: %s", name, short(value)))
}

func (c *column) fail(group string, err error) {
	reason, _, _ := strings.Cut(err.Error(), "\n")
	c.Failed = append(c.Failed, failure{group, reason})
}

func (c *column) failures() error {
	var errs []error
	for _, f := range c.Failed {
		errs = append(errs, fmt.Errorf("%s: %s", f.Group, f.Reason))
	}
	return errors.Join(errs...)
}

// columns are those in a file, with c in the place of an earlier one of as many clusters, or
// in it if c has some groups only.
func (c *column) columns(file string) ([]*column, error) {
	var all []*column
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &all)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if i := slices.IndexFunc(all, func(other *column) bool { return other.Clusters == c.Clusters }); i >= 0 {
		c = c.in(all[i])
		all = slices.Delete(all, i, i+1)
	}
	all = append(all, c)
	slices.SortFunc(all, func(a, b *column) int { return a.Clusters - b.Clusters })
	return all, err
}

// in returns what a file has of c after an earlier column, which it changes if c has some
// groups only.
func (c *column) in(earlier *column) *column {
	if c.some == nil {
		return c
	}
	if earlier.Again == nil {
		earlier.Again = map[string]string{}
	}
	for _, group := range c.some {
		earlier.Again[group] = c.Ran
	}
	earlier.Failed = slices.DeleteFunc(earlier.Failed, func(f failure) bool { return slices.Contains(c.some, f.Group) })
	earlier.Failed = append(earlier.Failed, c.Failed...)
	for _, r := range c.Rows {
		if i := slices.IndexFunc(earlier.Rows, func(old row) bool { return old.Name == r.Name }); i >= 0 {
			earlier.Rows[i] = r
		} else {
			earlier.Rows = append(earlier.Rows, r)
		}
	}
	return earlier
}

// write puts the column into out.json, and all columns as a table into out.txt.
func (c *column) write(out string) error {
	all, err := c.columns(out + ".json")
	if err != nil {
		return fmt.Errorf("reading %s.json: %w", out, err)
	}
	raw, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out+".json", append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(out+".txt", []byte(textOf(all)), 0o644)
}

func (c *column) text() string { return textOf([]*column{c}) }

func (c *column) find(name string) (float64, bool) {
	for _, r := range c.Rows {
		if r.Name == name {
			return r.Value, true
		}
	}
	return 0, false
}

// textOf is a table in Markdown. The rows are in the order of the column with most of them.
func textOf(all []*column) string {
	var b strings.Builder
	var order []string
	for _, c := range slices.SortedStableFunc(slices.Values(all), func(a, b *column) int { return len(b.Rows) - len(a.Rows) }) {
		for _, r := range c.Rows {
			if !slices.Contains(order, r.Name) {
				order = append(order, r.Name)
			}
		}
	}
	b.WriteString("| row |")
	for _, c := range all {
		fmt.Fprintf(&b, " %d |", c.Clusters)
	}
	b.WriteString(" growth |\n|---|" + strings.Repeat("---:|", len(all)) + "---|\n")
	for _, name := range order {
		fmt.Fprintf(&b, "| %s |", name)
		for _, c := range all {
			if value, ok := c.find(name); ok {
				fmt.Fprintf(&b, " %s |", short(value))
			} else {
				b.WriteString(" – |")
			}
		}
		fmt.Fprintf(&b, " %s |\n", growth(all, name))
	}
	b.WriteString("\nColumns are numbers of clusters.\n\n")
	for _, c := range all {
		fmt.Fprintf(&b, "%d: %s.\n", c.Clusters, c.Ran)
		for _, group := range slices.Sorted(maps.Keys(c.Again)) {
			fmt.Fprintf(&b, "%d: %s: %s.\n", c.Clusters, group, c.Again[group])
		}
		for _, f := range c.Failed {
			fmt.Fprintf(&b, "%d: NOT MEASURED: %s: %s\n", c.Clusters, f.Group, f.Reason)
		}
	}
	return b.String()
}

// growth says how a figure grows from the second largest column to the largest.
func growth(all []*column, name string) string {
	if len(all) < 2 {
		return ""
	}
	last, before := all[len(all)-1], all[len(all)-2]
	a, ok1 := before.find(name)
	b, ok2 := last.find(name)
	if !ok1 || !ok2 || a <= 0 || b <= 0 {
		return ""
	}
	power := math.Log(b/a) / math.Log(float64(last.Clusters)/float64(before.Clusters))
	switch {
	case power < 0.25:
		return "flat"
	case power < 0.75:
		return "less than linear"
	case power <= 1.15:
		return "linear"
	}
	return fmt.Sprintf("worse than linear (power %.2f)", power)
}

// short has three digits that count, or all before the point.
func short(value float64) string {
	if math.Abs(value) >= 100 {
		return strconv.FormatFloat(math.Round(value), 'f', -1, 64)
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}
