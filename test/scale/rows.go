package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// group is rows that are measured together. Those that are always measured make what the others
// need.
type group struct {
	name    string
	always  bool
	agents  bool // needs the agents of all clusters
	measure func(context.Context, *world) error
}

// groups are in the order in which they disturb each other least, with those that take minutes last:
// idle connections and watches come when those of the view have ended.
var groups = []group{
	{"before any cluster", true, false, measureEmpty},
	{"clusters come", true, false, measureArrival},
	{"idle", false, true, measureIdle},
	{"lists of clusters", false, false, measureLists},
	{"a user with 500 names", false, false, measureNames},
	{"a view of all clusters", false, true, measureView},
	{"metrics", false, false, measureSeries},
	{"addon manager restarts", false, false, measureManagerRestart},
	{"both proxy servers restart", false, true, measureServersRestart},
	{"one of two proxy servers restarts", false, true, measureServerRestart},
	{"every agent at once", false, true, measureStorm},
	{"a proxy server is missing", false, true, measureMissing},
	{"idle connections", false, true, measureConnections},
	{"watches", false, true, measureWatches},
	{"views of some clusters", false, true, measureViews},
	{"a third proxy server", false, true, measureThirdServer},
	{"a field changes", false, false, measureField},
	{"the CAs change", false, true, measureCAs},
}

// settle is how long processes have to come to rest.
const settle = 20 * time.Second

// limit is how long something that every cluster takes part in may take.
func (w *world) limit() time.Duration {
	return 3*time.Minute + time.Duration(w.size)*200*time.Millisecond
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

const mebi, kibi = 1 << 20, 1 << 10

func measureEmpty(ctx context.Context, w *world) error {
	if err := pause(ctx, settle); err != nil {
		return err
	}
	empty, err := w.usages(ctx)
	if err != nil {
		return err
	}
	w.empty = empty
	for _, process := range processes {
		w.add(process+", before any cluster: resident MiB", empty[process].rss/mebi)
	}
	return w.addStored(ctx, "before any cluster")
}

// measureArrival makes all clusters while there is no addon manager, and then starts that.
func measureArrival(ctx context.Context, w *world) error {
	if err := w.setReplicas(ctx, "cluster-proxy-addon-manager", 0); err != nil {
		return err
	}
	if err := w.await(ctx, "the addon manager's end", time.Minute, func() error {
		pods, err := w.pods(ctx, addonManager)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("it still runs")
		}
		return err
	}); err != nil {
		return err
	}
	var addon addonv1alpha1.ClusterManagementAddOn
	if err := w.objects.Get(ctx, client.ObjectKey{Name: identity.AddonName}, &addon); err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: addonv1alpha1.GroupVersion.String(), Kind: "ClusterManagementAddOn", Name: addon.Name, UID: addon.UID}
	w.say(fmt.Sprintf("creating %d clusters", w.size))
	all := names(w.size)
	for chunk := range slices.Chunk(all, 500) {
		if err := each(ctx, chunk, func(ctx context.Context, cluster string) error { return w.standIn.create(ctx, cluster, owner) }); err != nil {
			return err
		}
		w.say("created up to " + chunk[len(chunk)-1])
	}
	began := time.Now()
	if err := w.setReplicas(ctx, "cluster-proxy-addon-manager", 1); err != nil {
		return err
	}
	if err := w.awaitWorks(ctx, func(*workv1.ManifestWork) bool { return true }); err != nil {
		return err
	}
	w.add("addon manager, start: every cluster has its work, s", time.Since(began).Seconds())
	if err := w.await(ctx, "every cluster to be Available", w.limit(), func() error {
		if n := w.standIn.available(); n < w.size {
			return fmt.Errorf("%d of %d are", n, w.size)
		}
		return nil
	}); err != nil {
		return err
	}
	w.add("addon manager, start: every cluster is Available, s", time.Since(began).Seconds())
	if err := w.awaitShare(ctx, 0.98); err != nil {
		return err
	}
	requests, cpu, err := w.managerWork(ctx)
	if err != nil {
		return err
	}
	w.add("addon manager, start: requests to the hub per cluster", requests/float64(w.size))
	w.add("addon manager, start: CPU ms per cluster", cpu*1000/float64(w.size))
	return nil
}

func (w *world) awaitWorks(ctx context.Context, is func(*workv1.ManifestWork) bool) error {
	return w.await(ctx, "every cluster's work", w.limit(), func() error {
		if n := w.standIn.rendered(is); n < w.size {
			return fmt.Errorf("%d of %d have it", n, w.size)
		}
		return nil
	})
}

// awaitShare waits until each proxy server has a share of the agents. An agent that
// has another server takes its time to look for one that it lacks (proxyagent/search.go), and what is the
// last of thousands to find it says little.
func (w *world) awaitShare(ctx context.Context, share float64) error {
	return w.await(ctx, "agents on the proxy servers", 10*time.Minute, func() error { return w.haveAgents(ctx, share) })
}

func (w *world) haveAgents(ctx context.Context, share float64) error {
	pods, err := w.pods(ctx, proxyServers)
	if err != nil {
		return err
	}
	if len(pods) < w.servers {
		return fmt.Errorf("%d of %d proxy servers run", len(pods), w.servers)
	}
	for _, pod := range pods {
		text, err := w.metrics(ctx, pod)
		if err != nil {
			return err
		}
		if n := value(text, "cluster_proxy_server_agents{"); n < share*float64(w.running) {
			return fmt.Errorf("%s has %v of %d", pod.Name, n, w.running)
		}
	}
	return nil
}

// managerWork returns the requests that the addon manager has sent since it started, without
// those of its Lease, and the CPU time that it took.
func (w *world) managerWork(ctx context.Context) (requests, cpu float64, err error) {
	pods, err := w.pods(ctx, addonManager)
	if err != nil || len(pods) == 0 {
		return 0, 0, fmt.Errorf("no addon manager runs: %w", err)
	}
	text, err := w.metrics(ctx, pods[0])
	return value(text, "rest_client_requests_total"), value(text, "process_cpu_seconds_total"), err
}

// busy is the part of a processor that an idle addon manager does not take: after a restart it renders
// without a request for what has not changed.
const busy = 0.1

// awaitManager waits until the addon manager sends and computes hardly anything any more, and returns
// when that began, what it has sent and the CPU time it took.
func (w *world) awaitManager(ctx context.Context) (quiet time.Time, requests, cpu float64, err error) {
	const window = 5 * time.Second
	const calm = 3.0 // requests a second: its Lease, and watches that are renewed
	quiet = time.Now()
	requests, cpu, err = w.managerWork(ctx)
	for deadline := time.Now().Add(w.limit()); err == nil; {
		if err = pause(ctx, window); err != nil {
			break
		}
		now, took, err := w.managerWork(ctx)
		if err != nil {
			return quiet, 0, 0, err
		}
		if now-requests <= calm*window.Seconds() && took-cpu <= busy*window.Seconds() {
			return quiet, now, took, nil
		}
		if time.Now().After(deadline) {
			return quiet, now, took, fmt.Errorf("the addon manager still sends %.0f requests a second, and takes %.0f %% of a processor",
				(now-requests)/window.Seconds(), 100*(took-cpu)/window.Seconds())
		}
		quiet, requests, cpu = time.Now(), now, took
	}
	return quiet, requests, cpu, err
}

// idleFor is how long CPU time is measured while nothing happens.
const idleFor = 40 * time.Second

func measureIdle(ctx context.Context, w *world) error {
	if _, _, _, err := w.awaitManager(ctx); err != nil {
		return err
	}
	// Garbage is collected at least every two minutes.
	if err := pause(ctx, 2*time.Minute); err != nil {
		return err
	}
	before, after, requests, err := w.idle(ctx)
	if err != nil {
		return err
	}
	if after[theManager].minus(before[theManager]).cpu > busy*idleFor.Seconds() {
		// It looks at every cluster again each ten minutes, and that is none of its idle minutes.
		_, _, end, err := w.awaitManager(ctx)
		if err != nil {
			return err
		}
		w.add("addon manager, idle: CPU s of a look at every cluster each ten minutes", end-before[theManager].cpu)
		if before, after, requests, err = w.idle(ctx); err != nil {
			return err
		}
	}
	for _, process := range processes {
		u := after[process]
		grown := u.minus(w.empty[process])
		w.add(process+", idle: resident MiB", u.rss/mebi)
		w.add(process+", idle: resident KiB per cluster", grown.rss/kibi/float64(w.size))
		w.add(process+", idle: heap KiB per cluster", grown.heap/kibi/float64(w.size))
		w.add(process+", idle: open files per cluster", grown.files/float64(w.size))
		w.add(process+", idle: goroutines per cluster", grown.goroutines/float64(w.size))
		w.add(process+", idle: % of a processor", 100*u.minus(before[process]).cpu/idleFor.Seconds())
	}
	servers := float64(w.servers)
	w.add("an idle agent at both ends, of one proxy server: resident KiB",
		(after[theAgents].minus(w.empty[theAgents]).rss/servers+after[theServers].minus(w.empty[theServers]).rss)/kibi/float64(w.size))
	w.add("addon manager, idle: requests to the hub per minute", requests*float64(time.Minute)/float64(idleFor))
	return w.addStored(ctx, "idle")
}

// idle is what all take before and after some time in which nothing happens, and how many requests
// the addon manager sends meanwhile.
func (w *world) idle(ctx context.Context) (before, after map[string]usage, requests float64, err error) {
	if before, err = w.usages(ctx); err != nil {
		return nil, nil, 0, err
	}
	sent, _, err := w.managerWork(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	if err := pause(ctx, idleFor); err != nil {
		return nil, nil, 0, err
	}
	if after, err = w.usages(ctx); err != nil {
		return nil, nil, 0, err
	}
	later, _, err := w.managerWork(ctx)
	return before, after, later - sent, err
}

// addStored adds what the hub's etcd stores, with the revisions of the last minutes, which the
// kube-apiserver compacts every five.
func (w *world) addStored(ctx context.Context, when string) error {
	text, err := w.hubMetrics(ctx)
	w.add("hub etcd, "+when+": MiB", value(text, "apiserver_storage_size_bytes")/mebi)
	return err
}

func measureManagerRestart(ctx context.Context, w *world) error {
	pods, err := w.pods(ctx, addonManager)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := w.delete(ctx, pods...); err != nil {
		return err
	}
	if err := w.await(ctx, "the new addon manager", w.limit(), func() error {
		now, err := w.pods(ctx, addonManager)
		if err == nil && (len(now) == 0 || now[0].UID == pods[0].UID) {
			err = fmt.Errorf("it does not run")
		}
		return err
	}); err != nil {
		return err
	}
	quiet, requests, cpu, err := w.awaitManager(ctx)
	if err != nil {
		return err
	}
	w.add("addon manager, restart: quiet after, s", quiet.Sub(began).Seconds())
	w.add("addon manager, restart: requests to the hub", requests)
	w.add("addon manager, restart: CPU s", cpu)
	return nil
}

// measureField changes an argument of the agents, which is in every work. OCM then says of each
// addon that its configuration is another one, so the stand-in does. The simulated agents go on
// with the old argument.
func measureField(ctx context.Context, w *world) error {
	before, cpuBefore, err := w.managerWork(ctx)
	if err != nil {
		return err
	}
	const flag = "--target-dial-timeout=11s"
	began := time.Now()
	if err := w.configure(ctx, `{"spec":{"proxyAgent":{"additionalArgs":["`+flag+`"]}}}`); err != nil {
		return err
	}
	if err := each(ctx, names(w.size), func(ctx context.Context, cluster string) error { return w.standIn.configure(ctx, cluster, flag) }); err != nil {
		return err
	}
	w.add("stand-in, a field changes: every addon is told, s", time.Since(began).Seconds())
	if err := w.awaitWorks(ctx, func(work *workv1.ManifestWork) bool { return mentions(work, flag) }); err != nil {
		return err
	}
	w.add("addon manager, a field changes: every cluster has its work, s", time.Since(began).Seconds())
	quiet, requests, cpu, err := w.awaitManager(ctx)
	if err != nil {
		return err
	}
	w.add("addon manager, a field changes: quiet after, s", quiet.Sub(began).Seconds())
	w.add("addon manager, a field changes: requests to the hub per cluster", (requests-before)/float64(w.size))
	w.add("addon manager, a field changes: CPU ms per cluster", (cpu-cpuBefore)*1000/float64(w.size))
	return nil
}

// measureSeries counts lines of what a Prometheus scrapes.
func measureSeries(ctx context.Context, w *world) error {
	for name, label := range map[string]string{theManager: addonManager, theServers: proxyServers, theAPI: proxyAPI} {
		pods, err := w.pods(ctx, label)
		if err != nil || len(pods) == 0 {
			return fmt.Errorf("no %s runs: %w", name, err)
		}
		began := time.Now()
		text, err := w.metrics(ctx, pods[0])
		if err != nil {
			return err
		}
		w.add(name+", metrics: ms to serve them", time.Since(began).Seconds()*1000)
		series := 0
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") {
				series++
			}
		}
		w.add(name+", metrics: series", float64(series))
	}
	return nil
}
