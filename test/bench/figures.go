package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// owed is one promise: ours, as a multiple of what it is compared with or as an
// absolute figure, is at least or at most a bound.
type owed struct {
	measurement, figure string
	subject             string
	against             string // "" for an absolute bound
	atLeast             bool
	bound               float64
}

const (
	ourDialer   = "ours, our dialer"
	stockClient = "ours, stock client"
	bareRelay   = "bare relay"
	stockSystem = "konnectivity"
)

// promises are those of the design's performance page.
var promises = []owed{
	{"write", "Gbit/s", ourDialer, bareRelay, true, 0.9},
	{"read", "Gbit/s", ourDialer, bareRelay, true, 0.9},
	{"write", "Gbit/s", stockClient, stockSystem, true, 1.5},
	{"read", "Gbit/s", stockClient, stockSystem, true, 1.5},
	{"write", "cpu s/GiB", ourDialer, bareRelay, false, 1.15},
	{"read", "cpu s/GiB", ourDialer, bareRelay, false, 1.15},
	{"write", "cpu s/GiB", stockClient, stockSystem, false, 0.5},
	{"read", "cpu s/GiB", stockClient, stockSystem, false, 0.5},
	{"dial", "p50 ms", ourDialer, stockSystem, false, 0.1},
	{"dial", "p50 ms", stockClient, stockSystem, false, 1.0},
	{"exchange", "p50 µs", ourDialer, bareRelay, false, 1.3},
	{"exchange", "p50 µs", stockClient, stockSystem, false, 0.6},
	{"workers", "/s", ourDialer, stockSystem, true, 8},
	{"workers", "/s", stockClient, stockSystem, true, 1.0},
	{"stalled readers", "worst ms", ourDialer, "", false, 50},
	{"stalled readers", "worst ms", stockClient, "", false, 50},
	{"stalled targets", "worst ms", ourDialer, "", false, 50},
	{"stalled targets", "worst ms", stockClient, "", false, 50},
	{"stalled readers", "KiB/conn", ourDialer, "", false, 512},
	{"stalled readers", "KiB/conn", stockClient, "", false, 1024},
	{"write at 20ms", "Gbit/s", ourDialer, directTLS, true, 0.9},
	{"read at 20ms", "Gbit/s", ourDialer, directTLS, true, 0.9},
	{"write at 80ms", "Gbit/s", ourDialer, directTLS, true, 0.9},
	{"read at 80ms", "Gbit/s", ourDialer, directTLS, true, 0.9},
}

func printTable(out io.Writer, all results, subjects []*subject) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "figure")
	for _, s := range subjects {
		fmt.Fprint(w, "\t", s.name)
	}
	fmt.Fprintln(w)
	ms := measurements()
	for _, roundTrip := range roundTrips {
		ms = append(ms, distantMeasurements(roundTrip)...)
	}
	for _, m := range ms {
		figures := map[string]bool{}
		for _, of := range all[m.name] {
			for figure := range of {
				figures[figure] = true
			}
		}
		for _, figure := range slices.Sorted(maps.Keys(figures)) {
			fmt.Fprintf(w, "%s, %s", m.name, figure)
			for _, s := range subjects {
				if value, ok := all.median(m.name, s.name, figure); ok {
					fmt.Fprintf(w, "\t%.4g", value)
				} else {
					fmt.Fprint(w, "\t–")
				}
			}
			fmt.Fprintln(w)
		}
	}
	w.Flush()
	fmt.Fprintln(out)
	for _, p := range promises {
		if line := p.verdict(all); line != "" {
			fmt.Fprintln(out, line)
		}
	}
}

// verdict says whether a promise is kept, or "" if it was not measured.
func (p owed) verdict(all results) string {
	value, ok := all.median(p.measurement, p.subject, p.figure)
	if !ok {
		return ""
	}
	what, unit := "", strings.TrimSpace(strings.TrimLeft(p.figure, "p059wort "))
	if p.against != "" {
		base, ok := all.median(p.measurement, p.against, p.figure)
		if !ok || base == 0 {
			return ""
		}
		value /= base
		what, unit = " × "+p.against, ""
	}
	kept, sign := value <= p.bound, "≤"
	if p.atLeast {
		kept, sign = value >= p.bound, "≥"
	}
	word := "met   "
	if !kept {
		word = "MISSED"
	}
	return fmt.Sprintf("%s  %s, %s, %s: %.3g%s, owed %s %.3g %s", word, p.measurement, p.figure, p.subject, value, what, sign, p.bound, unit)
}
