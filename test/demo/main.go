// Command demo shows the main job from nothing: it builds the binary, starts a
// lab with a hub and two managed clusters that accept no connection, installs
// the chart, waits until the addon is Available on both, and then reaches them
// with stock kubectl and with a Go program. Everything it does is shown as the
// command a user would type.
//
// On a machine on which nothing is built, most of the time is OCM's and Kubernetes'. Before
// them the demo builds etcd and a kube-apiserver, and sends a first request to that one through
// a proxy server and an agent, which need no more than certificates.
//
// It exits 0 with the lab left running, or stopped with --once, and non-zero
// with the reason as soon as anything fails.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	once := flag.Bool("once", false, "stop the lab at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &demo{out: os.Stdout, once: *once}
	err := d.run(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\nthe lab's logs: go run ./test/lab/cmd/lab logs; stop it with: make demo-down\n", err)
		stop()
		os.Exit(1)
	}
}
