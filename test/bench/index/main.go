package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"open-cluster-management.io/cluster-proxy/test/bench/ground"
)

func main() {
	if role := os.Getenv(processEnv); role != "" {
		if err := runProcess(role); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	clusters := flag.Int("clusters", 5000, "how many clusters have 10 pods each, and their share of the other rows")
	rows := flag.Int("rows", 1_000_000, "how many rows all clusters have together")
	out := flag.String("out", "", "write the table to this file with .txt, and the raw figures to it with .json; refuse to measure what nobody could measure again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, theShape(*clusters, *rows), *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-index:", err)
		os.Exit(1)
	}
}

// filesWanted is more than the process of the agents has open: two carriers to each cluster, and some.
const filesWanted = 20_000

func bench(ctx context.Context, s shape, out string) error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	if files.Cur < filesWanted {
		return fmt.Errorf("a process may open %d files, and these clusters need %d: ulimit -n", files.Cur, filesWanted)
	}
	on, err := ground.Look(".")
	if err == nil && out != "" {
		err = on.Check()
	}
	if err != nil {
		return err
	}
	r := &results{out: os.Stdout, ground: on, began: time.Now(), values: map[string]samples{}}
	w, err := newWorld(ctx, s, r)
	if err != nil {
		return err
	}
	defer w.stop()
	for _, g := range groups {
		r.say("=== " + g.name)
		if err = g.measure(ctx, w); err != nil {
			err = fmt.Errorf("%s: %w", g.name, err)
			r.failed = append(r.failed, "NOT MEASURED: "+err.Error())
			break
		}
	}
	fmt.Fprint(r.out, "\n", r.text(s))
	if out == "" || ctx.Err() != nil {
		return err
	}
	if failed := r.write(out, s); failed != nil {
		return failed
	}
	return err
}
