package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// warning is what kubectl says of each cluster that has no part in an answer.
var warning = regexp.MustCompile(`(?m)^Warning: .*\n`)

// kubectl runs a program with a kubeconfig, and returns how long it took and the lines it wrote.
func (w *world) kubectl(ctx context.Context, program, kubeconfig string, args ...string) (took time.Duration, lines int, err error) {
	kubectl, env := w.lab.Kubectl("hub")
	if program == "" {
		program = kubectl
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(append(os.Environ(), env...), "KUBECONFIG="+kubeconfig)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	began := time.Now()
	err = cmd.Run()
	took, lines = time.Since(began), bytes.Count(out.Bytes(), []byte("\n"))
	if err != nil {
		text := warning.ReplaceAll(said.Bytes(), nil)
		err = fmt.Errorf("running %s %q: %w after %s: %.500s", program, args, err, took.Round(time.Second), text)
	}
	return took, lines, err
}

// timed adds how long a command takes the first time and again, and the CPU time that the proxy
// API takes for it again, and wants so many lines.
func (w *world) timed(ctx context.Context, row string, wantLines int, program, kubeconfig string, args ...string) error {
	first, lines, err := w.kubectl(ctx, program, kubeconfig, args...)
	if err != nil {
		return err
	}
	before, err := w.sum(ctx, proxyAPI, "process_cpu_seconds_total")
	if err != nil {
		return err
	}
	again, _, err := w.kubectl(ctx, program, kubeconfig, args...)
	if err != nil {
		return err
	}
	after, err := w.sum(ctx, proxyAPI, "process_cpu_seconds_total")
	if err != nil {
		return err
	}
	w.add(row+": the first time, s", first.Seconds())
	w.add(row+": again, s", again.Seconds())
	w.add(row+": again, CPU s of the proxy API", after-before)
	if lines != wantLines {
		return fmt.Errorf("%s has %d lines, want %d", row, lines, wantLines)
	}
	return nil
}

func measureLists(ctx context.Context, w *world) error {
	return errors.Join(
		w.timed(ctx, "kubectl get clusters", w.size+1, "", w.users.all, "get", "clusters.clusterproxy.open-cluster-management.io"),
		w.timed(ctx, "kubectl clusterproxy status", w.size+1, w.file("kubectl-clusterproxy"), w.users.all, "status"),
	)
}

func measureNames(ctx context.Context, w *world) error {
	name := fmt.Sprintf("kubectl get clusters, by a user of up to %d names", mostNamed)
	return w.timed(ctx, name, w.users.named500+1, "", w.users.named, "get", "clusters.clusterproxy.open-cluster-management.io")
}

func measureView(ctx context.Context, w *world) error {
	return w.timed(ctx, "kubectl get pods -A, of a view of all", w.size*podsOfCluster+1, "", w.users.all, "--context=fleet", "get", "pods", "-A")
}

// measureWatches opens watches through the proxy API, evenly over the clusters, in two steps.
func measureWatches(ctx context.Context, w *world) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	open := 0
	for _, many := range []int{1000, 10_000} {
		if many > 20*w.size {
			break // more than anybody has on one cluster
		}
		before, err := w.usages(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := w.openWatches(ctx, open, many); err != nil {
			return err
		}
		took := time.Since(began)
		if err := pause(ctx, settle); err != nil {
			return err
		}
		after, err := w.usages(ctx)
		if err != nil {
			return err
		}
		row := fmt.Sprintf("%d watches", many)
		w.add(row+": opened in, s", took.Seconds())
		for _, process := range []string{theAPI, theServers, theAgents} {
			grown := after[process].minus(before[process])
			w.add(row+": "+process+", resident KiB per watch", grown.rss/kibi/float64(many-open))
			w.add(row+": "+process+", open files per watch", grown.files/float64(many-open))
		}
		open = many
	}
	return nil
}

// watchUsers is how many users there are of watches: one may have 2,000 streams.
const watchUsers = 8

// openWatches opens those with the numbers from and up to.
func (w *world) openWatches(ctx context.Context, from, to int) error {
	var clients []*http.Client
	base := ""
	for i := range watchUsers {
		token, err := w.makeUser(ctx, fmt.Sprintf("scale-watcher-%d-%d", to, i), "cluster-proxy-user")
		if err != nil {
			return err
		}
		client, at, err := w.direct(ctx, token)
		if err != nil {
			return err
		}
		clients, base = append(clients, client), at
	}
	all := names(w.size)
	var opening sync.WaitGroup
	var failed atomic.Int32
	var reason atomic.Pointer[string]
	turns := make(chan struct{}, 64)
	for i := from; i < to; i++ {
		turns <- struct{}{}
		opening.Go(func() {
			defer func() { <-turns }()
			if err := openWatch(ctx, clients[i%watchUsers], base+"/"+all[i%w.size]+"/api/v1/pods?watch=1"); err != nil {
				failed.Add(1)
				text := err.Error()
				reason.Store(&text)
			}
		})
	}
	opening.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d watches were not opened: %s", n, to-from, *reason.Load())
	}
	return nil
}

// openWatch returns when the header of the answer is there. The watch ends with ctx.
func openWatch(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // the status says enough without
		return fmt.Errorf("a watch is answered %s: %s", response.Status, why)
	}
	return nil
}
