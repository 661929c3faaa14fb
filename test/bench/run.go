package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"open-cluster-management.io/cluster-proxy/test/bench/ground"
)

type options struct {
	rounds int
	only   string
	base   string // a commit
	out    string
}

// row is one measurement, over one kind of link.
type row struct {
	name string
	link link
	run  func(ctx context.Context, p *path) (sample, error)
	// fresh wants relays that have carried nothing yet, since it looks at their
	// memory or leaves them in a state that nobody else should meet.
	fresh bool
	// once is for what hardly differs from round to round and takes long.
	once bool
	// of are the subjects, by name; nil stands for all that the link has.
	of []string
}

// sample is what one round of one row gave: named figures.
type sample map[string]float64

// sampleLimit is when a subject is given up in a row.
const sampleLimit = 45 * time.Second

// errEndless is what a subject gave up is noted with. The table holds it.
var errEndless = fmt.Errorf("did not end within %s", sampleLimit)

// bench measures all rows, and prints each as it is had.
func bench(ctx context.Context, o options) (err error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("parsing -only: %w", err)
	}
	on, err := ground.Look(".")
	if err == nil && o.out != "" {
		err = on.Check()
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cluster-proxy-bench-")
	if err != nil {
		return err
	}
	defer func() { tidy(dir, err) }()
	w, err := newWorld(dir)
	if err != nil {
		return err
	}
	defer w.close()
	if o.base != "" {
		if w.base, err = checkOut(ctx, o.base, dir); err != nil {
			return err
		}
	}
	all := newResults(o, on)
	var open []*subject
	defer func() { closeAll(open) }()
	at := link{}
	for _, r := range rows() {
		if !only.MatchString(r.name) {
			continue
		}
		if open == nil || r.link != at {
			closeAll(open)
			if open, err = w.subjects(r.link); err != nil {
				all.skip(r, err)
				if err := all.write(os.Stdout, r); err != nil {
					return err
				}
				open = nil
				continue
			}
			at = r.link
		}
		measure(ctx, all, r, open)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := all.write(os.Stdout, r); err != nil {
			return err
		}
	}
	all.printVerdicts(os.Stdout)
	return nil
}

// tidy removes what a run made. After an error the logs stay.
func tidy(dir string, err error) {
	if err == nil {
		_ = os.RemoveAll(dir)
		return
	}
	_ = os.RemoveAll(filepath.Join(dir, builds))
	fmt.Fprintln(os.Stderr, "logs are in", dir)
}

func closeAll(subjects []*subject) {
	for _, s := range subjects {
		s.close()
	}
}

// measure runs rounds that are interleaved: whatever else the machine does hits
// all subjects. Every second round is in reverse order, so that none always follows
// the same one. A subject that did not end is not asked again.
func measure(ctx context.Context, all *results, r row, subjects []*subject) {
	rounds := all.rounds
	if r.once {
		rounds = 1
	}
	subjects = slices.Clone(subjects)
	for round := range rounds {
		if round > 0 {
			slices.Reverse(subjects)
		}
		for _, s := range subjects {
			if !r.wants(s) || all.failed(r.name, s.name) || ctx.Err() != nil {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s: %s (%d of %d)\n", r.name, s.name, round+1, rounds)
			began := time.Now()
			got, err := measureOne(ctx, r, s)
			fmt.Fprintf(os.Stderr, "  took %s\n", time.Since(began).Round(time.Millisecond))
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: %s: %v\n", r.name, s.name, err)
				all.fail(r.name, s.name, err)
				continue
			}
			all.add(r.name, s.name, got)
		}
	}
}

func (r row) wants(s *subject) bool {
	for _, name := range r.of {
		if name == s.name {
			return true
		}
	}
	return r.of == nil
}

// measureOne always ends: what is stuck for too long loses its relays, and all
// connections with them.
func measureOne(ctx context.Context, r row, s *subject) (sample, error) {
	if r.fresh {
		s.close()
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	if r.fresh {
		defer s.close()
	}
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	type outcome struct {
		sample sample
		err    error
	}
	ended := make(chan outcome, 1)
	p := s.path
	go func() {
		got, err := r.run(ctx, p)
		ended <- outcome{got, err}
	}()
	var got outcome
	select {
	case got = <-ended:
	case <-ctx.Done():
		s.close()
		select {
		case got = <-ended:
		case <-time.After(10 * time.Second):
			// konnectivity's client may wait for ever; it is left behind.
		}
		got.err = errEndless
	}
	if errors.Is(got.err, context.DeadlineExceeded) {
		got.err = errEndless
	}
	if got.err != nil {
		s.close()
	}
	return got.sample, got.err
}

// write prints a row and keeps all of them in the files.
func (all *results) write(out io.Writer, r row) error {
	if !all.begun {
		all.begun = true
		fmt.Fprint(out, all.head())
	}
	fmt.Fprint(out, all.lines(r))
	return all.save()
}
