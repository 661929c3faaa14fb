package main

import (
	"errors"
	"fmt"
	"strings"
)

// The names of the subjects, as the table shows them.
const (
	direct             = "direct"
	bareRelay          = "bare relay"
	konnectivitySystem = "konnectivity"
	stockClient        = "ours, stock client"
	ourDialer          = "ours, our dialer"
	baseStockClient    = "base, stock client"
	baseDialer         = "base, our dialer"
)

// targetFigure is a target: the median of one of our subjects, as a multiple of
// what it is compared with or as an absolute figure, is at least or at most bound.
type targetFigure struct {
	row, figure string
	subject     string
	against     string // "" for an absolute bound
	atLeast     bool
	bound       float64
}

// targetFigures are the target figures of the table's rows.
var targetFigures = []targetFigure{
	{"write", "Gbit/s", ourDialer, bareRelay, true, 0.9},
	{"read", "Gbit/s", ourDialer, bareRelay, true, 0.9},
	{"write", "Gbit/s", stockClient, konnectivitySystem, true, 1.5},
	{"read", "Gbit/s", stockClient, konnectivitySystem, true, 1.5},
	{"write", "cpu s/GiB", ourDialer, bareRelay, false, 1.15},
	{"read", "cpu s/GiB", ourDialer, bareRelay, false, 1.15},
	{"write", "cpu s/GiB", stockClient, konnectivitySystem, false, 0.5},
	{"read", "cpu s/GiB", stockClient, konnectivitySystem, false, 0.5},
	{"dial + 1 byte", "p50 ms", ourDialer, konnectivitySystem, false, 0.1},
	{"dial + 1 byte", "p50 ms", stockClient, konnectivitySystem, false, 1.0},
	{"256-byte exchange", "p50 µs", ourDialer, bareRelay, false, 1.3},
	{"256-byte exchange", "p50 µs", stockClient, konnectivitySystem, false, 0.6},
	{"64 workers", "/s", ourDialer, konnectivitySystem, true, 8},
	{"64 workers", "/s", stockClient, konnectivitySystem, true, 1.0},
	{"beside stalled readers", "worst ms", ourDialer, "", false, 50},
	{"beside stalled readers", "worst ms", stockClient, "", false, 50},
	{"beside stalled targets", "worst ms", ourDialer, "", false, 50},
	{"beside stalled targets", "worst ms", stockClient, "", false, 50},
	{"stalled reader", "KiB each", ourDialer, "", false, 512},
	{"stalled reader", "KiB each", stockClient, "", false, 1024},
	{"stalled target", "KiB each", ourDialer, "", false, 512},
	{"stalled target", "KiB each", stockClient, "", false, 1024},
	{"idle agent", "KiB each", ourDialer, "", false, 150},
	{"write at 20ms", "Gbit/s", ourDialer, direct, true, 0.9},
	{"read at 20ms", "Gbit/s", ourDialer, direct, true, 0.9},
	{"write at 80ms", "Gbit/s", ourDialer, direct, true, 0.9},
	{"read at 80ms", "Gbit/s", ourDialer, direct, true, 0.9},
}

// verdict tells whether a target is met. word is met, missed or, if the figure
// was not measured, empty.
type verdict struct {
	word   string
	detail string
}

func (v verdict) String() string { return pad(v.word, 7) + v.detail }

func (p targetFigure) verdict(all *results) verdict {
	name := fmt.Sprintf("%s, %s, %s: ", p.row, p.figure, p.subject)
	value, ok := all.median(p.row, p.subject, p.figure)
	if !ok {
		if err := all.failures[p.row][p.subject]; err != nil {
			return verdict{"missed", name + err.Error()}
		}
		return verdict{}
	}
	unit := " " + p.figure[strings.LastIndex(p.figure, " ")+1:]
	if strings.HasSuffix(p.figure, "each") {
		unit = " KiB"
	}
	if p.against != "" {
		base, ok := all.median(p.row, p.against, p.figure)
		if !ok || base == 0 {
			if errors.Is(all.failures[p.row][p.against], errEndless) {
				return verdict{"met", name + p.against + " " + errEndless.Error()}
			}
			if err := all.failures[p.row][p.against]; err != nil {
				return verdict{"missed", name + "there is nothing to compare with, since " + p.against + " failed: " + err.Error()}
			}
			return verdict{}
		}
		value, unit = value/base, " × "+p.against
	}
	met, sign := value <= p.bound, "≤"
	if p.atLeast {
		met, sign = value >= p.bound, "≥"
	}
	by := value/p.bound - 1
	if p.atLeast {
		by = p.bound/value - 1
	}
	detail := fmt.Sprintf("%s%s%s, target %s %s", name, number(value), unit, sign, number(p.bound))
	if met {
		return verdict{"met", detail}
	}
	return verdict{"missed", fmt.Sprintf("%s (by %.0f %%)", detail, 100*by)}
}
