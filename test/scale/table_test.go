package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTable writes columns one after the other, and one of them again.
func TestTable(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results")
	for _, run := range []struct {
		clusters    int
		flat, grows float64
	}{{5000, 10, 25_000_000}, {50, 11, 2500}, {500, 999, 1}, {500, 10, 250_000}} {
		c := newColumn(run.clusters)
		c.Rows = []row{{"flat", run.flat}, {"square", run.grows}}
		if run.clusters == 5000 {
			c.fail("a group", os.ErrDeadlineExceeded)
		}
		if err := c.write(out); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(out + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| row | 50 | 500 | 5000 | growth |\n", "| flat | 11 | 10 | 10 | flat |\n",
		"| square | 2500 | 250000 | 25000000 | worse than linear (power 2.00) |\n", "5000: NOT MEASURED: a group: i/o timeout\n",
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("the table lacks %q:\n%s", want, raw)
		}
	}
}

// TestSomeRowsJoinTheirColumn measures a group again, which failed, and leaves the others.
func TestSomeRowsJoinTheirColumn(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results")
	c := newColumn(50)
	c.Ran, c.Rows = "yesterday", []row{{"old", 1}, {"storm", 2}}
	c.fail("watches", os.ErrDeadlineExceeded)
	c.fail("the CAs change", os.ErrDeadlineExceeded)
	if err := c.write(out); err != nil {
		t.Fatal(err)
	}
	again := newColumn(50)
	again.Ran = "today"
	for _, measured := range []struct {
		group string
		row   row
	}{{"every agent at once", row{"storm", 3}}, {"watches", row{"new", 4}}} {
		again.some, again.Rows = append(again.some, measured.group), append(again.Rows, measured.row)
		if err := again.write(out); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(out + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	const want = `| row | 50 | growth |
|---|---:|---|
| old | 1 |  |
| storm | 3 |  |
| new | 4 |  |

Columns are numbers of clusters.

50: yesterday.
50: every agent at once: today.
50: watches: today.
50: NOT MEASURED: the CAs change: i/o timeout
`
	if string(raw) != want {
		t.Errorf("the table is\n%s\nwant\n%s", raw, want)
	}
}

// TestResolver finds every name at the addresses that it was given.
func TestResolver(t *testing.T) {
	addresses, err := parseAddresses([]string{"127.64.0.1", "127.64.0.2"})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for range 100 {
		got, err := resolver(addresses).LookupHost(t.Context(), entrypoint)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s is at %q, %v, want one address", entrypoint, got, err)
		}
		found[got[0]] = true
	}
	if len(found) != 2 || !found["127.64.0.1"] || !found["127.64.0.2"] {
		t.Errorf("found %v, want both addresses", found)
	}
}
