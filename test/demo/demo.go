package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
)

const hubNamespace = "open-cluster-management-addon"

var clusters = []string{"cluster1", "cluster2"}

type demo struct {
	out  io.Writer
	once bool

	lab        *lab.Lab
	dir        string // files of the demo: binary, kubeconfig, client certificate
	kubeconfig string // a context per managed cluster, through the proxy API
	// hubKubeconfig is that of a user of the hub.
	hubKubeconfig string
	step          int
	started       time.Time
	// built has the result of what is built in the background. It is nil if nothing is.
	built <-chan error
}

func (d *demo) run(ctx context.Context) (err error) {
	d.started = time.Now()
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("finding a folder for the demo: %w", err)
	}
	d.dir = filepath.Join(cache, "cluster-proxy-lab", "demo")
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return fmt.Errorf("making a folder for the demo: %w", err)
	}
	if err := lab.DownloadControlPlane(ctx, d.out); err != nil {
		return err
	}
	plan, err := lab.Plan(ctx, "")
	if err != nil {
		return err
	}
	d.announce(plan)
	// The end of the demo, whatever its reason, ends what is built in the background.
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		if d.built != nil {
			err = errors.Join(err, d.awaitRest(ctx))
		}
	}()
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"Build the binary, kubectl's plugin and the Go example", d.build},
		{"A first request through the tunnel, before there is OCM: one kube-apiserver, certificates made by hand", d.showFirst},
		{"Build what the whole lab needs", d.awaitRest},
		{"Start a hub and two managed clusters that accept no connection, with real OCM between them", d.startLab},
		{"Install the chart on the hub", d.install},
		{"Wait until the addon is Available on both clusters", d.waitAvailable},
		{"Write a kubeconfig with a context per managed cluster", d.writeKubeconfig},
		{"kubectl through the hub: pods, logs, exec", d.showKubectl},
		{"kubectl through the hub: a watch, and a change that arrives in it", d.showWatch},
		{"kubectl through the hub: a port-forward", d.showPortForward},
		{"A user of the hub, with nothing but her kubeconfig of the hub", d.showHubUser},
		{"The same user, on all clusters at once", d.showFleet},
		{"A Go program that overrides its dialer", d.showExample},
		{"A search of all clusters, and a list while one of them is away", d.showSearch},
	} {
		d.step++
		fmt.Fprintf(d.out, "\n=== %d. %s  [%s]\n", d.step, step.title, time.Since(d.started).Round(time.Second))
		if err = step.do(ctx); err != nil {
			err = fmt.Errorf("step %d, %s: %w", d.step, step.title, err)
			break
		}
	}
	if d.lab != nil && d.once {
		fmt.Fprintln(d.out, "\nstopping the lab")
		err = errors.Join(err, d.lab.Stop())
	}
	if err == nil {
		d.farewell()
	}
	return err
}

// announce says how long the demo takes, and when there is something to see.
func (d *demo) announce(plan lab.Building) {
	fmt.Fprintf(d.out, "The demo takes about 3 minutes, and sends its first request after 2 at most.\n")
	if len(plan.Programs) == 0 {
		return
	}
	fmt.Fprintf(d.out, "But %s. Ready-made programs of the right versions are taken from folders in $%s and $%s.\n", plan, lab.BinVariable, lab.EnvtestVariable)
	fmt.Fprintf(d.out, "That makes it about %d minutes to the first request, and %d to the end.\n", plan.First+2, plan.Minutes+3)
}

func (d *demo) farewell() {
	fmt.Fprintf(d.out, "\nDone in %s.\n", time.Since(d.started).Round(time.Second))
	if d.once {
		return
	}
	fmt.Fprintf(d.out, `The lab is still running. Try:

    export KUBECONFIG=%s PATH=%s:$PATH
    kubectl clusterproxy status
    kubectl --context cluster1 get pods -A
    kubectl --context cluster2 exec -it deploy/web -- sh
    kubectl --context fleet get deployments
    go run ./test/lab/cmd/lab status
    make demo-down
`, d.hubKubeconfig, d.dir)
}

func (d *demo) build(ctx context.Context) error {
	_, err := d.show(ctx, nil, "go", "build", "-o", d.dir+string(filepath.Separator), "./cmd/cluster-proxy", "./cmd/kubectl-clusterproxy", "./examples/tunnel-client")
	return err
}

func (d *demo) startLab(ctx context.Context) (err error) {
	d.lab, err = lab.Up(ctx, lab.Options{Clusters: clusters, Binary: filepath.Join(d.dir, "cluster-proxy"), Out: d.out})
	return err
}

func (d *demo) install(ctx context.Context) error {
	set := append(d.lab.ChartValues(), "fleetIndex.enabled=true", "fleetIndex.persistence.enabled=false")
	fmt.Fprintf(d.out, "$ helm upgrade --install cluster-proxy charts/cluster-proxy --namespace %s --create-namespace --set %s\n", hubNamespace, strings.Join(set, ","))
	return d.lab.InstallChart(ctx, "cluster-proxy", hubNamespace, "charts/cluster-proxy", set...)
}

func (d *demo) waitAvailable(ctx context.Context) error {
	addons, err := addonclient.NewForConfig(d.lab.Hub.RESTConfig())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	last := map[string]string{}
	for {
		ready := 0
		for _, cluster := range clusters {
			state := "no ManagedClusterAddOn yet"
			addon, err := addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(ctx, identity.AddonName, metav1.GetOptions{})
			if err == nil {
				state = "installing"
				for _, c := range addon.Status.Conditions {
					if c.Type == "Available" {
						state = fmt.Sprintf("Available=%s (%s)", c.Status, c.Reason)
						if c.Status == metav1.ConditionTrue {
							ready++
						}
					}
				}
			}
			if state != last[cluster] {
				last[cluster] = state
				fmt.Fprintf(d.out, "  %s: %s  [%s]\n", cluster, state, time.Since(d.started).Round(time.Second))
			}
		}
		if ready == len(clusters) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until every cluster is Available: %w; last seen %v", ctx.Err(), last)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// typed is a command as a user would type it.
func (d *demo) typed(name string, args []string) string {
	text := filepath.Base(name)
	for _, arg := range args {
		if strings.ContainsAny(arg, " $;{}&") {
			arg = "'" + arg + "'"
		}
		text += " " + arg
	}
	return strings.ReplaceAll(text, d.dir, "…")
}

// show prints a command as a user would type it, runs it, prints what it says
// and returns that.
func (d *demo) show(ctx context.Context, env []string, name string, args ...string) (string, error) {
	shown := d.typed(name, args)
	fmt.Fprintf(d.out, "$ %s\n", shown)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	both := io.MultiWriter(&out, d.out)
	cmd.Stdout, cmd.Stderr = both, both // one and the same, which exec writes to from one goroutine
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("running %q: %w", shown, err)
	}
	return out.String(), nil
}

// kubectl runs stock kubectl on a managed cluster, through the hub.
func (d *demo) kubectl(ctx context.Context, cluster string, args ...string) (string, error) {
	path, env := d.lab.Kubectl(cluster)
	return d.show(ctx, append(env, "KUBECONFIG="+d.kubeconfig), path, append([]string{"--context", cluster}, args...)...)
}

func (d *demo) showKubectl(ctx context.Context) error {
	for _, cluster := range clusters {
		for _, command := range []struct {
			args []string
			want string
		}{
			{[]string{"get", "pods", "-o", "wide"}, "web-"},
			{[]string{"logs", "deploy/web", "--tail=1"}, cluster},
			{[]string{"exec", "deploy/web", "--", "sh", "-c", `echo "this is $CLUSTER"`}, "this is " + cluster},
		} {
			out, err := d.kubectl(ctx, cluster, command.args...)
			if err != nil {
				return err
			}
			if !strings.Contains(out, command.want) {
				return fmt.Errorf("%q is not in what kubectl %s said", command.want, strings.Join(command.args, " "))
			}
		}
	}
	return nil
}

func (d *demo) showWatch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, cluster := range clusters {
		path, env := d.lab.Kubectl(cluster)
		watch := exec.CommandContext(ctx, path, "--context", cluster, "get", "configmaps", "--watch-only", "--output-watch-events", "--no-headers")
		watch.Env = append(append(os.Environ(), env...), "KUBECONFIG="+d.kubeconfig)
		lines := newLineWaiter("demo-watch")
		watch.Stdout, watch.Stderr = lines, os.Stderr
		fmt.Fprintf(d.out, "$ kubectl --context %s get configmaps --watch-only --output-watch-events &\n", cluster)
		if err := watch.Start(); err != nil {
			return err
		}
		// A change is repeated until its event arrives: kubectl does not say
		// when its watch has begun.
		err := d.changeUntilSeen(ctx, cluster, lines)
		_ = watch.Process.Kill()
		_ = watch.Wait()
		if err != nil {
			return err
		}
		fmt.Fprintf(d.out, "%s\n", lines.Line())
	}
	return nil
}

func (d *demo) changeUntilSeen(ctx context.Context, cluster string, lines *lineWaiter) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := 0; ; i++ {
		cs, err := kubernetes.NewForConfig(d.lab.Managed[cluster].RESTConfig())
		if err != nil {
			return err
		}
		if err := touchConfigMap(ctx, cs, "demo-watch", i); err != nil {
			return err
		}
		select {
		case <-lines.Seen():
			return nil
		case <-ctx.Done():
			return fmt.Errorf("no watch event from %s within a minute", cluster)
		case <-time.After(time.Second):
		}
	}
}

func (d *demo) showPortForward(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, cluster := range clusters {
		path, env := d.lab.Kubectl(cluster)
		forward := exec.CommandContext(ctx, path, "--context", cluster, "port-forward", "deploy/web", ":8080")
		forward.Env = append(append(os.Environ(), env...), "KUBECONFIG="+d.kubeconfig)
		lines := newLineWaiter("Forwarding from 127.0.0.1:")
		forward.Stdout, forward.Stderr = lines, os.Stderr
		fmt.Fprintf(d.out, "$ kubectl --context %s port-forward deploy/web :8080 &\n", cluster)
		if err := forward.Start(); err != nil {
			return err
		}
		body, err := getThrough(ctx, lines)
		_ = forward.Process.Kill()
		_ = forward.Wait()
		if err != nil {
			return fmt.Errorf("port-forward to %s: %w", cluster, err)
		}
		fmt.Fprintf(d.out, "$ curl localhost:…\n%s\n", strings.TrimSpace(body))
		if !strings.Contains(body, cluster) {
			return fmt.Errorf("the answer %q does not name %s", body, cluster)
		}
	}
	return nil
}

// getThrough waits for kubectl to say where it listens and sends one request.
func getThrough(ctx context.Context, lines *lineWaiter) (string, error) {
	select {
	case <-lines.Seen():
	case <-ctx.Done():
		return "", ctx.Err()
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(lines.Line(), "Forwarding from "), " ")
	return plainhttp.Get(ctx, "http://"+address+"/")
}
