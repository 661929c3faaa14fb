package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// delete deletes pods; their Deployments make new ones.
func (w *world) delete(ctx context.Context, pods ...corev1.Pod) error {
	var errs []error
	for _, pod := range pods {
		errs = append(errs, w.kube.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	}
	return errors.Join(errs...)
}

func measureServerRestart(ctx context.Context, w *world) error {
	return w.measureRestart(ctx, "one of two proxy servers restarts", 1)
}

func measureServersRestart(ctx context.Context, w *world) error {
	return w.measureRestart(ctx, "both proxy servers restart", 2)
}

func (w *world) measureRestart(ctx context.Context, what string, servers int) error {
	return w.measureReturn(ctx, what, func() error {
		pods, err := w.pods(ctx, proxyServers)
		if err != nil {
			return err
		}
		return w.delete(ctx, pods[:min(servers, len(pods))]...)
	})
}

// measureThirdServer adds one, to which all agents connect.
func measureThirdServer(ctx context.Context, w *world) error {
	return w.measureReturn(ctx, "from 2 proxy servers to 3", func() error {
		w.servers = 3
		return w.setServers(ctx, 3)
	})
}

// measureStorm has agents that lose all connections while the proxy servers stay, so that all
// come back at once.
func measureStorm(ctx context.Context, w *world) error {
	return w.measureReturn(ctx, "every agent loses both proxy servers at once", func() error {
		var errs []error
		for _, b := range w.balancers {
			_, err := b.ask(request{Cut: true})
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// measureMissing takes a proxy server away while the addon manager goes on telling agents that
// there are two, as when no node has room for it.
func measureMissing(ctx context.Context, w *world) error {
	what := fmt.Sprintf("one of two proxy servers is missing for %.0f minutes", w.missing.Minutes())
	pods, err := w.pods(ctx, proxyServers)
	if err != nil {
		return err
	}
	if err := w.setRoom(ctx, false); err != nil {
		return err
	}
	err = w.measureReturn(ctx, what, func() error {
		if err := w.delete(ctx, pods[0]); err != nil {
			return err
		}
		return errors.Join(w.measureSearch(ctx, what), w.setRoom(ctx, true))
	})
	return errors.Join(err, w.setRoom(ctx, true))
}

// measureSearch measures what agents do while they look for a proxy server that is missing.
func (w *world) measureSearch(ctx context.Context, what string) error {
	first := w.missing / 4 // the first tries
	if err := pause(ctx, first); err != nil {
		return err
	}
	before, err := w.handshakes(ctx)
	if err != nil {
		return err
	}
	beforeAll, err := w.usages(ctx)
	if err != nil {
		return err
	}
	d := w.missing - first
	if err := pause(ctx, d); err != nil {
		return err
	}
	after, err := w.handshakes(ctx)
	if err != nil {
		return err
	}
	now, err := w.usages(ctx)
	if err != nil {
		return err
	}
	made := 0.0
	for pod, h := range after {
		made += h.made + h.failed - before[pod].made - before[pod].failed
	}
	w.add(what+": handshakes per agent and minute meanwhile", made/float64(w.size)/d.Minutes())
	w.add(what+": agents, % of a processor meanwhile", 100*now[theAgents].minus(beforeAll[theAgents]).cpu/d.Seconds())
	return nil
}

// setRoom says whether new pods find a node.
func (w *world) setRoom(ctx context.Context, room bool) error {
	nodes, err := w.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, node := range nodes.Items {
		_, err := w.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, !room), metav1.PatchOptions{})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// measureReturn measures how long it takes until every agent is back after something was done
// to proxy servers, and what a user notices meanwhile.
func (w *world) measureReturn(ctx context.Context, what string, disturb func() error) error {
	if err := w.awaitShare(ctx, 0.9); err != nil {
		return err
	}
	quiet, err := w.traffic(ctx, 15*time.Second)
	if err != nil {
		return err
	}
	before, err := w.handshakes(ctx)
	if err != nil {
		return err
	}
	beforeAll, err := w.usages(ctx)
	if err != nil {
		return err
	}
	user := w.startTraffic(ctx)
	if err := disturb(); err != nil {
		user.stop()
		return err
	}
	began := time.Now()
	// Deleted pods are there for a moment.
	err = pause(ctx, 3*time.Second)
	for _, share := range []float64{0.5, 0.9} {
		if err == nil {
			err = w.awaitShare(ctx, share)
		}
		if err == nil {
			w.add(fmt.Sprintf("%s: %.0f %% of the agents are on every proxy server after, s", what, 100*share), time.Since(began).Seconds())
		}
	}
	w.addTraffic(what, quiet, user.stop())
	if err != nil {
		return err
	}
	after, err := w.handshakes(ctx)
	if err != nil {
		return err
	}
	made, failed := 0.0, 0.0
	for pod, now := range after {
		made += now.made - before[pod].made
		failed += now.failed - before[pod].failed
	}
	w.add(what+": handshakes per agent", made/float64(w.size))
	w.add(what+": handshakes that failed or were dropped, per agent", failed/float64(w.size))
	now, err := w.usages(ctx)
	if err != nil {
		return err
	}
	w.add(what+": agents, CPU ms each", now[theAgents].minus(beforeAll[theAgents]).cpu*1000/float64(w.size))
	w.add(what+": each proxy server, resident MiB after it", now[theServers].rss/mebi)
	return nil
}

// handshakes are those of a proxy server.
type handshakes struct{ made, failed float64 }

// handshakes are those since they started of the proxy servers that run, by pod.
func (w *world) handshakes(ctx context.Context) (map[string]handshakes, error) {
	pods, err := w.pods(ctx, proxyServers)
	if err != nil {
		return nil, err
	}
	all := map[string]handshakes{}
	for _, pod := range pods {
		text, err := w.metrics(ctx, pod)
		if err != nil {
			return nil, err
		}
		const name = "cluster_proxy_server_tls_handshakes_total"
		all[pod.Name] = handshakes{
			made:   value(text, name, `"full"`) + value(text, name, `"resumed"`),
			failed: value(text, name, `"failed"`) + value(text, "cluster_proxy_server_tls_handshakes_dropped_total"),
		}
	}
	return all, nil
}
