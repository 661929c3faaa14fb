package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	if kind := os.Getenv(childEnv); kind != "" {
		if err := runChild(kind); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	clusters := flag.Int("clusters", 5000, "how many clusters to simulate")
	agents := flag.Int("agents", 0, "run agents of so many clusters only, if it is not 0; of the others the stand-in says that they do, and rows that need all agents are left out")
	missing := flag.Duration("missing", 2*time.Minute, "take a proxy server away for so long; ten minutes are a node that nobody replaces")
	only := flag.String("rows", "", "measure only the groups of rows whose names match this regular expression; they join the column that the file has")
	out := flag.String("out", "", "write the figures to this file with .json, as a column beside those of other numbers of clusters, and the table to it with .txt")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	w := &world{out: os.Stdout, began: time.Now(), size: *clusters, running: min(cmp.Or(*agents, *clusters), *clusters), missing: *missing}
	err := run(ctx, w, *only, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nscale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w *world, only, out string) (err error) {
	selected, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("parsing --rows: %w", err)
	}
	w.table = newColumn(w.size)
	if w.running < w.size {
		w.table.Ran += fmt.Sprintf(", agents of %d clusters only", w.running)
	}
	if err := w.announce(ctx); err != nil {
		return err
	}
	defer w.stop()
	if err := w.start(ctx); err != nil {
		return err
	}
	for _, g := range groups {
		chosen := selected.MatchString(g.name)
		if !g.always && !chosen || g.agents && w.running < w.size {
			continue
		}
		w.say("=== " + g.name)
		if err := g.measure(ctx, w); err != nil {
			if g.always || ctx.Err() != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
			// The next ones can still be measured.
			w.table.fail(g.name, err)
			w.say("FAILED: " + err.Error())
		}
		if only != "" {
			if !chosen {
				w.table.Rows = nil
				continue
			}
			w.table.some = append(w.table.some, g.name)
		}
		if out != "" {
			if err := w.table.write(out); err != nil {
				return err
			}
		}
	}
	fmt.Fprint(w.out, "\n", w.table.text())
	return w.table.failures()
}
