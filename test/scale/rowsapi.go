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
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/testkit/connector"
)

// warning is what kubectl says of each cluster that has no part in an answer.
var warning = regexp.MustCompile(`(?m)^Warning: .*\n`)

// kubectl runs a program with a kubeconfig, and returns how long it took, the lines it wrote, and
// what it said beside them.
func (w *world) kubectl(ctx context.Context, program, kubeconfig string, args ...string) (took time.Duration, lines int, beside string, err error) {
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
	return took, lines, said.String(), err
}

// timed adds how long a command takes the first time and again, and the CPU time that the proxy
// API takes for it again, and wants so many lines.
func (w *world) timed(ctx context.Context, row string, wantLines int, program, kubeconfig string, args ...string) error {
	first, lines, beside, err := w.kubectl(ctx, program, kubeconfig, args...)
	if err != nil {
		return err
	}
	before, err := w.sum(ctx, proxyAPI, "process_cpu_seconds_total")
	if err != nil {
		return err
	}
	again, _, _, err := w.kubectl(ctx, program, kubeconfig, args...)
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
		return fmt.Errorf("%s has %d lines, want %d: %.500s", row, lines, wantLines, beside)
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

// mostUsed is how many connections to clusters there may be when others are measured: one is kept
// for five minutes after its use, and the lab's Services, which are one process, have no files for
// more than one to each of 5,000. Idle connections leave 1,000 behind.
const mostUsed = 1500

// awaitUnused waits until the connections of earlier rows have ended.
func (w *world) awaitUnused(ctx context.Context) error {
	return w.await(ctx, "the end of connections to clusters", 8*time.Minute, func() error {
		now, err := w.usages(ctx)
		if n := now[theAPI].minus(w.empty[theAPI]).files; err == nil && n > mostUsed {
			err = fmt.Errorf("the proxy API has %.0f", n)
		}
		return err
	})
}

// measureWatches opens watches through the proxy API, evenly over the clusters, in two steps.
func measureWatches(ctx context.Context, w *world) error {
	if err := w.awaitUnused(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	open := 0
	for _, many := range []int{1000, 10_000} {
		if many > 20*w.size {
			break // more than anybody has on one cluster
		}
		if err := w.measureOpen(ctx, fmt.Sprintf("%d watches", many), "watch", many-open, onTheWay, func() error { return w.openWatches(ctx, open, many) }); err != nil {
			return err
		}
		open = many
	}
	return nil
}

// measureConnections opens connections to the kube-apiservers of the clusters, evenly, by CONNECT,
// on which nobody says anything.
func measureConnections(ctx context.Context, w *world) error {
	if err := w.awaitUnused(ctx); err != nil {
		return err
	}
	token, err := w.makeUser(ctx, "scale-connector", "cluster-proxy-user")
	if err != nil {
		return err
	}
	address, ca, err := w.proxyAPI(ctx)
	if err != nil {
		return err
	}
	user := connector.Connector{Address: address, CA: ca, Token: token}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const many = 1000
	all := names(w.size)
	return w.measureOpen(ctx, fmt.Sprintf("%d idle connections", many), "connection", many, onTheWay, func() error {
		return openEach(0, many, manyAtATime, "connections", func(i int) error {
			conn, err := user.Dial(ctx, all[i%w.size]+":443")
			if err == nil {
				context.AfterFunc(ctx, func() { conn.Close() })
			}
			return err
		})
	})
}

// The views of measureViews, and the clusters of each.
const (
	manyViews      = 100
	clustersOfView = 10
)

// measureViews makes views of some clusters each, lists through each, and watches through each. No
// two have a cluster in common while there are enough.
func measureViews(ctx context.Context, w *world) error {
	if err := w.awaitUnused(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	token, err := w.makeUser(ctx, "scale-viewer", "cluster-proxy-user")
	if err != nil {
		return err
	}
	client, base, err := w.direct(ctx, token)
	if err != nil {
		return err
	}
	all := names(w.size)
	requests, cpu, err := w.managerWork(ctx)
	if err != nil {
		return err
	}
	row := fmt.Sprintf("%d views of %d clusters", manyViews, clustersOfView)
	if err := w.measureOpen(ctx, row+", each made", "view", manyViews, []string{theManager, theAPI}, func() error {
		return openEach(0, manyViews, viewsAtATime, "views", func(i int) error {
			view := &v1alpha1.FleetView{ObjectMeta: metav1.ObjectMeta{Name: viewName(i)}}
			for j := range clustersOfView {
				view.Spec.Clusters.Names = append(view.Spec.Clusters.Names, all[(i*clustersOfView+j)%w.size])
			}
			return w.objects.Create(ctx, view)
		})
	}); err != nil {
		return err
	}
	later, took, err := w.managerWork(ctx)
	if err != nil {
		return err
	}
	w.add(row+": addon manager, requests to the hub per view", (later-requests)/manyViews)
	w.add(row+": addon manager, CPU ms per view", (took-cpu)*1000/manyViews)
	url := func(i int) string { return base + "/@" + viewName(i) + "/api/v1/pods" }
	if err := w.measureOpen(ctx, row+", a list of each", "view", manyViews, onTheWay, func() error {
		return openEach(0, manyViews, viewsAtATime, "lists", func(i int) error {
			code, err := ask(ctx, client, url(i))
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("a list through a view is answered %d", code)
			}
			return err
		})
	}); err != nil {
		return err
	}
	return w.measureOpen(ctx, row+", a watch of each", "view", manyViews, onTheWay, func() error {
		return openEach(0, manyViews, viewsAtATime, "watches of views", func(i int) error { return openWatch(ctx, client, url(i)+"?watch=1") })
	})
}

func viewName(i int) string { return fmt.Sprintf("scale-%03d", i) }

// How many are opened at a time: requests for views are limited to a few of each user.
const (
	manyAtATime  = 64
	viewsAtATime = 8
)

// onTheWay are the processes through which a request goes.
var onTheWay = []string{theAPI, theServers, theAgents}

// measureOpen measures what so many of something take in some processes once they have been opened,
// beside nothing else.
func (w *world) measureOpen(ctx context.Context, row, each string, many int, in []string, open func() error) error {
	if _, _, _, err := w.awaitManager(ctx); err != nil {
		return err
	}
	before, err := w.usages(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := open(); err != nil {
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
	w.add(row+": done in, s", took.Seconds())
	for _, process := range in {
		grown := after[process].minus(before[process])
		w.add(row+": "+process+", resident KiB per "+each, grown.rss/kibi/float64(many))
		w.add(row+": "+process+", open files per "+each, grown.files/float64(many))
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
	return openEach(from, to, manyAtATime, "watches", func(i int) error {
		return openWatch(ctx, clients[i%watchUsers], base+"/"+all[i%w.size]+"/api/v1/pods?watch=1")
	})
}

// openEach opens things with the numbers from and up to, some at a time.
func openEach(from, to, atATime int, what string, open func(i int) error) error {
	var opening errgroup.Group
	opening.SetLimit(atATime)
	var failed atomic.Int32
	for i := from; i < to; i++ {
		opening.Go(func() error {
			err := open(i)
			if err != nil {
				failed.Add(1)
			}
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		return fmt.Errorf("%d of %d %s were not opened: %w", failed.Load(), to-from, what, err)
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
