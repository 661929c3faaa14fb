package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/test/bench/ground"
)

func main() {
	o := options{}
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of every row; the median counts")
	flag.StringVar(&o.only, "only", "", "measure the rows whose names this regular expression matches")
	flag.StringVar(&o.base, "base", "", "measure the processes of this commit beside today's, in place of konnectivity and the bare relay")
	flag.StringVar(&o.out, "out", "", "write the tables to this file with .txt, and the raw figures to it with .json, after each row")
	child := childOptions{}
	flag.StringVar(&child.role, "child", "", "run as one of bench's own processes: hub, edge, target, agents or konnectivity-agents")
	flag.StringVar(&child.listen, "listen", "127.0.0.1:0", "address to listen on (with --child)")
	flag.StringVar(&child.dir, "dir", "", "folder with certificates (with --child)")
	flag.StringVar(&child.to, "to", "", "next hop (with --child)")
	checkGround := flag.Bool("ground", false, "print the commit and the load, and fail if figures would mean nothing; measure nothing")
	flag.Parse()
	// konnectivity's client and agents say at length what a row breaks on purpose.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	switch {
	case child.role != "":
		err = child.run(ctx)
	case *checkGround:
		var on ground.Ground
		if on, err = ground.Look("."); err == nil {
			err = on.Check()
		}
		fmt.Println(on)
	default:
		err = bench(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
