package rules

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPerformanceShowsTheBenchmark holds the rows of the page's table to those that make
// bench wrote last.
func TestPerformanceShowsTheBenchmark(t *testing.T) {
	const page = "docs/explanation/performance.md"
	performance := read(t, page)
	results := read(t, "test/bench/results.txt")
	rows := 0
	for line := range strings.Lines(performance) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		if rows++; !strings.Contains(results, line) {
			t.Errorf("test/bench/results.txt does not have this row of %s: copy it from there\n%s", page, line)
		}
	}
	if rows < 8 {
		t.Errorf("%s shows %d rows of the benchmark, want 8 at least", page, rows)
	}
	// The table is of one day.
	if date := results[:len("2026-11-21")]; !strings.Contains(performance, date) {
		t.Errorf("%s does not say that its rows are of %s", page, date)
	}
}

// bars matches a bar chart of one row of a table: its title, its columns and its figures.
var bars = regexp.MustCompile(`(?s)title "([^"]+)"\s+x-axis \["([^\]]+)"\]\s+y-axis [^\n]+\s+bar \[([^\]]+)\]`)

// TestChartsShowTheBenchmark holds the bars of the page's charts to what make bench wrote last.
func TestChartsShowTheBenchmark(t *testing.T) {
	const page = "docs/explanation/performance.md"
	charts := bars.FindAllStringSubmatch(read(t, page), -1)
	for _, chart := range charts {
		columns, figures := strings.Split(chart[2], `", "`), strings.Split(chart[3], ", ")
		if len(columns) != len(figures) {
			t.Errorf("%s, %s: %d bars for %d columns", page, chart[1], len(figures), len(columns))
			continue
		}
		for i, column := range columns {
			got, err := cell(filepath.Join(root(t), "test/bench/results.txt"), chart[1], column)
			if err != nil {
				t.Errorf("%s: %v", page, err)
			} else if got = strings.ReplaceAll(got, ",", ""); got != figures[i] {
				t.Errorf("%s: the bar of %q, %q, is %s; test/bench/results.txt has %s", page, chart[1], column, figures[i], got)
			}
		}
	}
	if len(charts) < 3 {
		t.Errorf("%s has %d charts, want 3 at least", page, len(charts))
	}
}

// figure matches the note that a text has, in a comment, behind figures that it
// takes from a table: "figures: FILE; ROW; COLUMN; FIGURE". FILE is below
// test/bench, FIGURE is how the text writes it.
var figure = regexp.MustCompile(`<!-- figures: ([^;>]+); ([^;>]+); ([^;>]+); ([^;>]+) -->`)

// TestTextsAgreeWithTheFigures holds texts to the tables that they cite: the
// paragraph has the figure, and so has the table, rounded to as many digits.
func TestTextsAgreeWithTheFigures(t *testing.T) {
	for path, least := range map[string]int{"docs/how-to/size.md": 1, "test/bench/profile.md": 4, "test/bench/api-profile.md": 3} {
		content := read(t, path)
		notes := 0
		for paragraph := range strings.SplitSeq(content, "\n\n") {
			text := figure.ReplaceAllString(paragraph, "")
			for _, note := range figure.FindAllStringSubmatch(paragraph, -1) {
				notes++
				file, row, column, written := note[1], note[2], note[3], note[4]
				if !strings.Contains(text, written) {
					t.Errorf("%s: no %q in the paragraph whose note has it: %.100q", path, written, text)
				}
				if got, err := cell(filepath.Join(root(t), "test/bench", file), row, column); err != nil {
					t.Errorf("%s: %v", path, err)
				} else if !rounds(got, written) {
					t.Errorf("%s says %s; %q of %q in %s is %s", path, written, column, row, file, got)
				}
			}
		}
		if notes < least {
			t.Errorf("%s has %d notes of where figures come from, want %d at least", path, notes, least)
		}
	}
}

// cell returns the figure of a row and a column of a table: of one with bars, or
// of one whose columns are apart by two blanks and more.
func cell(file, row, column string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	split := func(line string) (cells []string) {
		if strings.HasPrefix(line, "|") {
			for _, cell := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|") {
				cells = append(cells, strings.TrimSpace(cell))
			}
			return cells
		}
		return regexp.MustCompile(`  +`).Split(strings.TrimSpace(line), -1)
	}
	at := -1
	// The names of rows in tables without bars have two blanks as well.
	row = strings.Join(strings.Fields(row), " ")
	for line := range strings.Lines(string(content)) {
		line = strings.ReplaceAll(line, ",  1 at a time", ", 1 at a time")
		cells := split(line)
		if i := slices.Index(cells, column); i > 0 && at < 0 {
			at = i
		} else if cells[0] == row && at > 0 && at < len(cells) {
			value, _, _ := strings.Cut(cells[at], " ")
			return value, nil
		}
	}
	return "", fmt.Errorf("no row %q with a column %q in %s", row, column, filepath.Base(file))
}

// rounds reports whether value, rounded to as many digits as written has, is
// written.
func rounds(value, written string) bool {
	number, err := strconv.ParseFloat(strings.ReplaceAll(value, ",", ""), 64)
	if err != nil {
		return false
	}
	written = strings.ReplaceAll(written, ",", "")
	_, decimals, _ := strings.Cut(written, ".")
	if strconv.FormatFloat(number, 'f', len(decimals), 64) == written {
		return true
	}
	// "410" for 409: a zero at the end says nothing.
	tens := strconv.FormatFloat(math.Round(number/10)*10, 'f', 0, 64)
	return decimals == "" && strings.HasSuffix(written, "0") && tens == written
}

func TestRounds(t *testing.T) {
	for _, test := range []struct {
		value, written string
		want           bool
	}{
		{"409", "410", true}, {"409", "409", true}, {"409", "330", false}, {"93.1", "93", true}, {"93.1", "94", false},
		{"0.361", "0.36", true}, {"0.361", "0.37", false}, {"5,829", "5,829", true}, {"9.452", "9.5", true}, {"failed", "1", false},
	} {
		if got := rounds(test.value, test.written); got != test.want {
			t.Errorf("%s as %s: %v, want %v", test.value, test.written, got, test.want)
		}
	}
}

// mostCommits is how often what a file's figures are of may have changed since they were
// measured. 165 small commits changed a third of the lines.
const mostCommits = 200

// measured are the files of figures that documents link, with the folders that decide about them.
var measured = map[string][]string{
	"test/bench/results.txt":        {"pkg/carrier", "pkg/connect", "pkg/dial", "pkg/frames", "pkg/proxyserver", "pkg/tunnel"},
	"test/bench/api.txt":            {"pkg/httprelay", "pkg/proxyagent", "pkg/proxyapi"},
	"test/bench/fleet.txt":          {"pkg/fleetview"},
	"test/e2e/clients.txt":          {"pkg/fleetview", "pkg/proxyagent", "pkg/proxyapi"},
	"test/conformance/upstream.txt": {"charts", "pkg/addonmanager"},
	"test/e2e/faults.txt":           {"pkg"},
	"test/e2e/karmada.txt":          {"pkg/addonmanager/karmada", "pkg/proxyapi"},
	"test/e2e/kubernetes.txt":       {"pkg/fleetview", "pkg/proxyagent", "pkg/proxyapi"},
	"test/e2e/move.txt":             {"charts", "pkg/addonmanager", "pkg/proxyserver", "pkg/tunnel"},
}

var (
	linkedFigures = regexp.MustCompile(`\]\((?:\.\./)*(test/[^)#]+\.txt)\)`)
	recorded      = regexp.MustCompile(`^\d{4}-\d\d-\d\d(?: \d\d:\d\d UTC)?, commit ([0-9a-f]{7,40})[,\s]`)
)

// TestFiguresAreRecent wants each file of figures that a document links to begin with its date
// and commit, and to be measured again when the code has changed much since.
func TestFiguresAreRecent(t *testing.T) {
	linked := map[string]bool{}
	for _, document := range append(pages(t), "SECURITY.md", "CONTRIBUTING.md", "METRICS.md") {
		content := read(t, document)
		for _, link := range linkedFigures.FindAllStringSubmatch(content, -1) {
			linked[link[1]] = true
			if measured[link[1]] == nil {
				t.Errorf("%s links %s, of which this test does not know what its figures are of", document, link[1])
			}
		}
	}
	for file, folders := range measured {
		if !linked[file] {
			t.Errorf("no document links %s", file)
		}
		content := read(t, file)
		head := recorded.FindStringSubmatch(content)
		if head == nil {
			t.Errorf("%s begins with %.60q, want its date and commit", file, content)
			continue
		}
		out, err := exec.Command("git", append([]string{"-C", root(t), "rev-list", "--count", head[1] + "..HEAD", "--"}, folders...)...).CombinedOutput()
		if err != nil {
			t.Errorf("%s is of commit %s, which git does not know: %v: %s", file, head[1], err, out)
			continue
		}
		if commits, err := strconv.Atoi(strings.TrimSpace(string(out))); err != nil || commits > mostCommits {
			t.Errorf("%d commits have changed %s since %s was measured, %v; want %d at most: measure it again", commits, strings.Join(folders, ", "), file, err, mostCommits)
		}
	}
}
