package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"open-cluster-management.io/cluster-proxy/test/lab/nodes"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

const hubName = "hub"

// Images of a lab with nodes. The addon's has the name that the chart makes of
// the lab's values.
const (
	pauseImage   = "lab.local/pause:1"
	corednsImage = "lab.local/coredns:1"
	webImage     = "lab.local/web:1"
	addonImage   = addonRegistry + "/cluster-proxy"
	addonTag     = "lab"

	// addonRegistry is upstream's, whose values an upgrade keeps.
	addonRegistry = "quay.io/open-cluster-management"
)

// Options say what lab to start.
type Options struct {
	// Dir holds the lab's files while it runs. It must be empty or absent.
	Dir string
	// Clusters are the names of the managed clusters; cluster1 and cluster2 if
	// it is nil.
	Clusters []string
	// OCM is the release of OCM to run.
	OCM Release
	// GRPC are those of the managed clusters that join by OCM's gRPC server, where
	// the release has one. The others join by certificate signing request.
	GRPC []string
	// Tokens are those of the managed clusters whose OCM agent gives addons tokens of
	// the hub, where the release can, and not certificates.
	Tokens []string
	// Older are those of the managed clusters whose kube-apiserver is a minor release of Kubernetes
	// older, OlderKubernetes. Nothing else of them is older, and no cluster with a machine can be.
	Older []string
	// WithoutOCM leaves OCM's controllers out of the hub; whoever starts the lab plays their
	// part. Its definitions are there, and the webhook that converts addons. Clusters must be
	// empty, and not nil.
	WithoutOCM bool
	// LocalCluster is the name under which the hub is a managed cluster of itself.
	// It is none if the name is empty.
	LocalCluster string
	// Binary is the addon's binary, which runs in the pods of the charts.
	Binary string
	// Nodes gives each cluster a machine of its own with a kubelet and real
	// containers (root, Linux), in which nobody can dial the managed ones. Binary
	// must be static then.
	Nodes bool
	// Out is told what happens; nothing is said if it is nil.
	Out io.Writer
}

func (o Options) withDefaults() Options {
	if o.Clusters == nil {
		o.Clusters = []string{"cluster1", "cluster2"}
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}

// Lab is a running lab.
type Lab struct {
	Hub     *Cluster
	Managed map[string]*Cluster
	// AgentPort is the local port behind port 8091 of Service proxy-entrypoint
	// on the hub: agents are given 127.0.0.1 and this port as entrypoint.
	AgentPort int

	dir        string
	release    release
	withoutOCM bool
	local      string // the hub's name as a managed cluster, or empty
	localGroup *group // its klusterlet, where the hub has no machine
	assets     Assets
	extra      Assets // what only a lab with nodes needs
	nodes      *nodes.Lab
	forwards   forwards
	group      *group
	runners    map[string]*podRunner
	services   *serviceTable
}

// Start starts a lab in this process and returns when every cluster has
// registered at the hub. Stop it with Stop; if Start fails, nothing is left
// running.
func Start(ctx context.Context, options Options) (_ *Lab, err error) {
	options = options.withDefaults()
	if _, err := os.Stat(options.Binary); err != nil {
		return nil, fmt.Errorf("finding the addon's binary: %w; build it with: make build", err)
	}
	if entries, err := os.ReadDir(options.Dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("starting a lab in %s: the folder is not empty; stop the lab in it with lab down, or choose another folder", options.Dir)
	}
	release, err := options.OCM.find()
	if err != nil {
		return nil, err
	}
	if options.Nodes {
		return startNodes(ctx, options, release)
	}
	assets, err := BuildAssets(ctx, options.OCM, options.Out)
	if err != nil {
		return nil, err
	}
	older, err := buildOlder(ctx, options)
	if err != nil {
		return nil, err
	}
	l := &Lab{dir: options.Dir, release: release, withoutOCM: options.WithoutOCM, assets: assets, group: newGroup(), Managed: map[string]*Cluster{}, runners: map[string]*podRunner{}}
	defer func() {
		if err != nil {
			l.group.stop()
		}
	}()
	if err := l.prepare(options); err != nil {
		return nil, err
	}
	for _, name := range options.Older {
		l.Managed[name].older = older
	}
	began := time.Now()
	say := func(text string) {
		fmt.Fprintf(options.Out, "lab: %s [%s]\n", text, time.Since(began).Round(100*time.Millisecond))
	}
	say("starting control planes")
	limited, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	starting, startCtx := errgroup.WithContext(limited)
	for _, c := range l.clusters() {
		starting.Go(func() error { return l.startCluster(startCtx, c) })
	}
	if err := starting.Wait(); err != nil {
		return nil, err
	}
	say("control planes are ready; registering clusters")
	if err := l.register(limited, options, say); err != nil {
		return nil, err
	}
	return l, l.startPods(options.Binary)
}

// register has every managed cluster join the hub.
func (l *Lab) register(ctx context.Context, options Options, say func(string)) error {
	if l.release.grpc && !l.withoutOCM {
		if err := l.awaitGRPC(ctx); err != nil {
			return err
		}
	}
	for name, c := range l.Managed {
		c.grpc = l.release.grpc && slices.Contains(options.GRPC, name)
		c.tokens = l.release.grpc && slices.Contains(options.Tokens, name)
		if err := c.startKlusterlet(ctx, l.group, l.assets, l.Hub, name); err != nil {
			return fmt.Errorf("starting the klusterlet of %s: %w", name, err)
		}
	}
	if options.LocalCluster != "" {
		if err := l.JoinHub(ctx, options.LocalCluster); err != nil {
			return err
		}
		say("the hub has joined itself as " + options.LocalCluster)
	}
	for name := range l.Managed {
		if err := l.Hub.waitRegistered(ctx, name); err != nil {
			return err
		}
		say(name + " has joined")
	}
	return nil
}

func (l *Lab) clusters() []*Cluster {
	all := []*Cluster{l.Hub}
	for _, c := range l.Managed {
		all = append(all, c)
	}
	return all
}

func (l *Lab) prepare(options Options) error {
	if err := ports.Fill(&l.AgentPort); err != nil {
		return err
	}
	for _, name := range append([]string{hubName}, options.Clusters...) {
		if l.Managed[name] != nil || name == hubName && l.Hub != nil {
			return fmt.Errorf("cluster name %q is used twice, or is the hub's", name)
		}
		c := &Cluster{Name: name, dir: filepath.Join(l.dir, name), logs: filepath.Join(l.dir, "logs"), agentPort: l.AgentPort}
		if err := ports.Fill(&c.etcdPort, &c.apiPort, &c.kwokPort, &c.webPort); err != nil {
			return err
		}
		if err := os.MkdirAll(c.logs, 0o755); err != nil {
			return err
		}
		if err := c.prepare(); err != nil {
			return fmt.Errorf("preparing cluster %s: %w", name, err)
		}
		if name == hubName {
			l.Hub = c
		} else {
			l.Managed[name] = c
		}
	}
	return nil
}

func (l *Lab) startCluster(ctx context.Context, c *Cluster) error {
	peer, err := ports.Next()
	if err != nil {
		return err
	}
	if err := c.startStore(ctx, l.group, l.assets, peer); err != nil {
		return err
	}
	if err := c.applyCRDs(ctx, l.assets); err != nil {
		return err
	}
	if err := c.startControllers(l.group, l.assets); err != nil {
		return err
	}
	switch {
	case c.isHub() && !l.withoutOCM:
		if err := c.startOCMHub(ctx, l.group, l.assets, l.release); err != nil {
			return fmt.Errorf("starting OCM on the hub: %w", err)
		}
	case c.isHub() && l.release.converts:
		if err := c.convertAddons(ctx, l.group, l.assets); err != nil {
			return err
		}
	}
	return c.createWorkloads(ctx)
}

// startPods starts what runs the addon's own pods.
func (l *Lab) startPods(binary string) error {
	l.services = newServiceTable(l.dir, map[string]int{"proxy-entrypoint:8091": l.AgentPort})
	for _, c := range l.clusters() {
		runner, err := newPodRunner(c, binary, l.services)
		if err != nil {
			return err
		}
		l.runners[c.Name] = runner
		l.group.do(runner.run)
	}
	return nil
}

// Stop stops every process of the lab and waits until they are gone.
func (l *Lab) Stop() error {
	if l.group == nil {
		return Down(l.dir)
	}
	l.group.stop()
	if l.nodes == nil {
		return nil
	}
	return l.nodes.Stop()
}

func (l *Lab) cluster(name string) *Cluster {
	if name == hubName || name == l.local {
		return l.Hub
	}
	return l.Managed[name]
}

// ChartValues are those with which the hub chart works in this lab, each
// "key=value".
func (l *Lab) ChartValues() []string {
	if l.nodes == nil {
		return []string{"registry=" + addonRegistry, "proxyServer.entrypointAddress=127.0.0.1", fmt.Sprint("proxyServer.port=", l.AgentPort)}
	}
	return []string{"registry=" + addonRegistry, "tag=" + addonTag, "proxyServer.entrypointLoadBalancer=true"}
}

// Kubectl is the real kubectl with the environment it should run in; it is the
// caller who says which cluster it talks to.
func (l *Lab) Kubectl(cluster string) (path string, env []string) {
	return l.assets.path("kubectl"), []string{"KUBECACHEDIR=" + filepath.Join(l.dir, cluster, "kubectl-cache")}
}

// InstallChart installs or upgrades a release on the hub with the real helm.
// Each of set is "key=value".
func (l *Lab) InstallChart(ctx context.Context, release, namespace, chart string, set ...string) error {
	args := []string{"upgrade", "--install", release, chart, "--kubeconfig=" + l.Hub.KubeconfigPath, "--namespace=" + namespace, "--create-namespace"}
	for _, value := range set {
		args = append(args, "--set="+value)
	}
	return l.Helm(ctx, args...)
}

// Helm runs the real helm.
func (l *Lab) Helm(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, l.assets.path("helm"), args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+filepath.Join(l.dir, "helm"), "HELM_CONFIG_HOME="+filepath.Join(l.dir, "helm"), "HELM_DATA_HOME="+filepath.Join(l.dir, "helm"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running helm %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// AuditLog is the file with the audit events of a cluster's kube-apiserver.
func (l *Lab) AuditLog(cluster string) string {
	if cluster == l.local {
		cluster = hubName
	}
	return filepath.Join(l.dir, "logs", cluster+"-audit.log")
}

// LogDir is the folder with the log of every process.
func (l *Lab) LogDir() string { return filepath.Join(l.dir, "logs") }

// PodLogDir is the folder with the logs of every container of a cluster, in a
// lab with nodes.
func (l *Lab) PodLogDir(cluster string) string {
	return filepath.Join(l.dir, cluster, "varlog", "pods")
}

// ServiceAddress is the local address of a port of a Service whose pods the lab
// runs. In a lab with nodes it serves for as long as this process runs.
func (l *Lab) ServiceAddress(cluster, namespace, service string, port int) (string, error) {
	if l.nodes != nil {
		return l.forward(cluster, namespace, service, port)
	}
	address, ok := readServiceTable(l.dir)[serviceKey(cluster, namespace, service, port)]
	if !ok {
		return "", fmt.Errorf("no pod of the lab is behind port %d of Service %s/%s on %s", port, namespace, service, cluster)
	}
	return address, nil
}

// PausePods stops the processes of our pods on one cluster and keeps them
// stopped until ResumePods, as if the cluster's nodes had no power. In a lab with
// nodes it pulls the cluster's network cable instead.
func (l *Lab) PausePods(cluster string) error { return l.pause(cluster, true) }

// ResumePods undoes PausePods.
func (l *Lab) ResumePods(cluster string) error { return l.pause(cluster, false) }

// PodsEnded has an error while a process of a pod that was deleted still runs, on
// one cluster of a lab without nodes. Such a pod may be gone from the API.
func (l *Lab) PodsEnded(ctx context.Context, cluster string) error {
	runner, ok := l.runners[cluster]
	if !ok {
		return fmt.Errorf("no pods of cluster %q run in this process", cluster)
	}
	name, err := runner.leftOver(ctx)
	if err == nil && name != "" {
		err = fmt.Errorf("a process of pod %q, which is deleted, still runs", name)
	}
	return err
}

func (l *Lab) pause(cluster string, paused bool) error {
	if l.nodes != nil {
		return l.link(cluster, paused)
	}
	runner, ok := l.runners[cluster]
	if !ok {
		return errors.New("only the process that started a lab can pause its pods, and only of its clusters")
	}
	runner.setPaused(paused)
	return nil
}
