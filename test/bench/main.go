package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 3, "rounds of every measurement; the median counts")
	only := flag.String("only", "", "run the measurements whose name holds this text")
	out := flag.String("out", "", "file for the raw figures as JSON")
	relayHalf := flag.String("relay", "", "run as a process of the bare relay: hub or edge (used by bench itself)")
	dir := flag.String("dir", "", "folder with certificates (with --relay)")
	to := flag.String("to", "", "next hop (with --relay)")
	flag.Parse()
	var err error
	if *relayHalf != "" {
		err = runRelay("127.0.0.1:0", *to, certFiles(*dir), *relayHalf == "hub")
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err = bench(ctx, *rounds, *only, *out)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// results are figures by measurement, subject and figure, one a round.
type results map[string]map[string]map[string][]float64

func (r results) add(measurement, subject string, s sample) {
	if r[measurement] == nil {
		r[measurement] = map[string]map[string][]float64{}
	}
	if r[measurement][subject] == nil {
		r[measurement][subject] = map[string][]float64{}
	}
	for figure, value := range s {
		r[measurement][subject][figure] = append(r[measurement][subject][figure], value)
	}
}

// median is that of all rounds; ok is false if the figure was not measured.
func (r results) median(measurement, subject, figure string) (value float64, ok bool) {
	values := slices.Clone(r[measurement][subject][figure])
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	return values[len(values)/2], true
}

func bench(ctx context.Context, rounds int, only, out string) error {
	dir, err := os.MkdirTemp("", "cluster-proxy-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w, err := newWorld(dir)
	if err != nil {
		return err
	}
	subjects, err := setUp(w)
	if err != nil {
		return err
	}
	defer func() {
		for _, s := range subjects {
			s.close()
		}
	}()
	all := results{}
	measure(ctx, all, measurements(), subjects, rounds, only)
	for _, roundTrip := range roundTrips {
		if err := measureDistant(ctx, w, all, roundTrip, rounds, only); err != nil {
			fmt.Fprintf(os.Stderr, "at a round trip of %s: %v\n", roundTrip, err)
		}
	}
	printTable(os.Stdout, all, append([]*subject{{name: directTLS}}, subjects...))
	if out == "" {
		return nil
	}
	raw, err := json.MarshalIndent(map[string]any{
		"date": time.Now().Format(time.DateOnly), "cpus": runtime.NumCPU(), "go": runtime.Version(), "rounds": all,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, raw, 0o644)
}

// measure runs rounds that are interleaved: whatever else the machine does hits
// all subjects.
func measure(ctx context.Context, all results, ms []measurement, subjects []*subject, rounds int, only string) {
	for _, m := range ms {
		if !strings.Contains(m.name, only) {
			continue
		}
		for round := range rounds {
			for _, s := range subjects {
				fmt.Fprintf(os.Stderr, "%s: %s (%d of %d)\n", m.name, s.name, round+1, rounds)
				got, err := m.run(ctx, s)
				if err != nil {
					fmt.Fprintf(os.Stderr, "%s: %s: %v\n", m.name, s.name, err)
					continue
				}
				all.add(m.name, s.name, got)
			}
		}
	}
}

// measureDistant measures bulk transfers with the agent a round trip away.
func measureDistant(ctx context.Context, w *world, all results, roundTrip time.Duration, rounds int, only string) error {
	ms := distantMeasurements(roundTrip)
	if !slices.ContainsFunc(ms, func(m measurement) bool { return strings.Contains(m.name, only) }) {
		return nil
	}
	subjects, err := w.distant(roundTrip)
	if err != nil {
		return err
	}
	defer func() {
		for _, s := range subjects {
			s.close()
		}
	}()
	measure(ctx, all, ms, subjects, rounds, only)
	return nil
}

func setUp(w *world) ([]*subject, error) {
	direct, err := w.direct()
	if err != nil {
		return nil, err
	}
	subjects := []*subject{direct}
	bare, err := w.bareRelay()
	if err != nil {
		return nil, err
	}
	subjects = append(subjects, bare)
	stock, err := w.stock(0)
	if err != nil {
		bare.close()
		return nil, err
	}
	subjects = append(subjects, stock)
	stockClient, ownClient, err := w.ours(0)
	if err != nil {
		for _, s := range subjects {
			s.close()
		}
		return nil, fmt.Errorf("%w (logs: %s)", err, filepath.Join(w.dir, "*.log"))
	}
	return append(subjects, stockClient, ownClient), nil
}
