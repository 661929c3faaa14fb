package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

const (
	namespace = "open-cluster-management-addon"
	// entrypoint is the name that agents dial; see resolver.
	entrypoint = "agents.scale.test"
	// agentsPerProcess and addressesPerBalancer keep a process below 20,000 open files and a
	// balancer's addresses below 28,000 connections.
	agentsPerProcess     = 625
	addressesPerBalancer = 12
	filesWanted          = 20_000
)

// world is all that runs: the hub, our processes on it, and the simulated clusters.
type world struct {
	out   io.Writer
	began time.Time
	size  int
	// running is how many of the clusters have an agent that runs.
	running int
	// missing is how long a proxy server is missing in the row of that.
	missing time.Duration
	table   *column

	dir       string
	lab       *lab.Lab
	config    *rest.Config // the hub's administrator
	kube      *kubernetes.Clientset
	objects   client.Client
	standIn   *standIn
	agents    []*child
	balancers []*child
	cancel    context.CancelFunc
	following sync.WaitGroup
	users     users
	empty     map[string]usage // before there was any cluster
	servers   int              // proxy servers that are asked for
}

func (w *world) say(text string) {
	fmt.Fprintf(w.out, "[%s] %s\n", time.Since(w.began).Round(time.Second), text)
}

// announce says how long it will take, and refuses a machine that cannot.
func (w *world) announce(ctx context.Context) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Cur < filesWanted && w.size > 1000 {
		return fmt.Errorf("a process may open %d files, and %d clusters need %d: ulimit -n", limit.Cur, w.size, filesWanted)
	}
	plan, err := lab.Plan(ctx, "")
	if err != nil {
		return err
	}
	if len(plan.Programs) > 0 {
		w.say("Before anything else, " + plan.String() + ".")
	}
	w.say(fmt.Sprintf("%d clusters take about %d minutes on 2 cores, and %d GiB of memory.", w.size, 20+w.size*65/5000, 2+w.size*16/5000))
	return nil
}

// start brings up everything but the clusters' objects.
func (w *world) start(ctx context.Context) (err error) {
	if w.dir, err = os.MkdirTemp("", "scale-"); err != nil {
		return err
	}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for name, pkg := range map[string]string{"cluster-proxy": "./cmd/cluster-proxy", "kubectl-clusterproxy": "./cmd/kubectl-clusterproxy"} {
		w.say("building " + name)
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", w.file(name), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
	}
	if w.lab, err = lab.Start(ctx, lab.Options{Dir: w.file("lab"), Clusters: []string{}, WithoutOCM: true, Binary: w.file("cluster-proxy"), Out: w.out}); err != nil {
		return err
	}
	w.config = w.lab.Hub.RESTConfig()
	if w.kube, err = kubernetes.NewForConfig(w.config); err != nil {
		return err
	}
	scheme, err := hubScheme()
	if err != nil {
		return err
	}
	if w.objects, err = client.New(w.config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	port, err := w.startChildren(ctx)
	if err != nil {
		return err
	}
	if err := w.install(ctx, port); err != nil {
		return err
	}
	if w.standIn, err = newStandIn(w.file("clusters"), w.config, w.startAgent); err != nil {
		return err
	}
	if err := w.standIn.allowRequests(ctx); err != nil {
		return err
	}
	if err := w.standIn.run(ctx); err != nil {
		return err
	}
	w.following.Go(func() { w.follow(ctx) })
	return w.makeUsers(ctx)
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// startChildren starts the processes that simulate, and returns the port that agents dial.
func (w *world) startChildren(ctx context.Context) (port int, err error) {
	if port, err = ports.Next(); err != nil {
		return 0, err
	}
	for i := range (w.running + agentsPerProcess - 1) / agentsPerProcess {
		spec := childSpec{Dir: w.dir, Port: port}
		for j := range addressesPerBalancer {
			spec.Addresses = append(spec.Addresses, fmt.Sprintf("127.64.%d.%d", i, j+1))
		}
		for kind, list := range map[string]*[]*child{"balancer": &w.balancers, "agents": &w.agents} {
			c, err := startChild(ctx, kind, fmt.Sprint(kind, "-", i), spec)
			if err != nil {
				return 0, err
			}
			*list = append(*list, c)
		}
	}
	return port, nil
}

// install installs the chart, and then asks for two proxy servers: replicas is one value for
// all processes.
func (w *world) install(ctx context.Context, port int) error {
	w.say("installing the chart")
	if err := w.lab.InstallChart(ctx, "cluster-proxy", namespace, "charts/cluster-proxy",
		"registry=none.example.com", "proxyServer.entrypointAddress="+entrypoint, fmt.Sprint("proxyServer.port=", port), "secretPropagationSeconds=10"); err != nil {
		return err
	}
	w.servers = 2
	if err := w.setServers(ctx, w.servers); err != nil {
		return err
	}
	return w.await(ctx, "two proxy servers", time.Minute*3, func() error {
		servers, err := w.pods(ctx, proxyServers)
		if err == nil && len(servers) != 2 {
			err = fmt.Errorf("%d proxy servers run", len(servers))
		}
		return err
	})
}

func (w *world) setServers(ctx context.Context, n int) error {
	return w.configure(ctx, fmt.Sprintf(`{"spec":{"proxyServer":{"replicas":%d}}}`, n))
}

// configure changes the ManagedProxyConfiguration.
func (w *world) configure(ctx context.Context, patch string) error {
	configuration := &v1alpha1.ManagedProxyConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster-proxy"}}
	return w.objects.Patch(ctx, configuration, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// setReplicas scales a Deployment of the addon's.
func (w *world) setReplicas(ctx context.Context, deployment string, n int) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment}}
	return w.objects.Patch(ctx, d, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)))
}

// startAgent starts an agent in the process that its cluster belongs to.
func (w *world) startAgent(spec agentSpec) error {
	var number int
	if _, err := fmt.Sscanf(spec.Cluster, "cluster-%d", &number); err != nil {
		return err
	}
	if number >= w.running {
		w.standIn.setLeased([]string{spec.Cluster})
		return nil
	}
	answer, err := w.agents[number/agentsPerProcess].ask(request{Start: []agentSpec{spec}})
	w.standIn.setLeased(answer.Leased)
	return err
}

// follow tells the stand-in which clusters have renewed their Leases, and the balancers which
// proxy servers there are.
func (w *world) follow(ctx context.Context) {
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		var backends []string
		if servers, err := w.pods(ctx, proxyServers); err == nil {
			for _, server := range servers {
				if address, err := w.address(server, "agent-server"); err == nil {
					backends = append(backends, address)
				}
			}
		}
		for i := range w.agents {
			if len(backends) > 0 {
				_, _ = w.balancers[i].ask(request{Backends: backends})
			}
			if answer, err := w.agents[i].ask(request{}); err == nil {
				w.standIn.setLeased(answer.Leased)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// await waits until ready returns nil, and says every now and then what is missing.
func (w *world) await(ctx context.Context, what string, limit time.Duration, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	said := time.Now()
	err := wait.Poll{Every: 500 * time.Millisecond}.Try(ctx, func() error {
		err := ready()
		if err != nil && time.Since(said) > 10*time.Second {
			w.say("waiting for " + what + ": " + err.Error())
			said = time.Now()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// stop ends everything and removes it.
func (w *world) stop() {
	if w.cancel != nil {
		w.cancel()
	}
	w.following.Wait()
	for _, c := range append(w.agents, w.balancers...) {
		c.stop()
	}
	if w.lab != nil {
		_ = w.lab.Stop()
	}
	_ = os.RemoveAll(w.dir)
}
