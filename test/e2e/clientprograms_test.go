package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/bench/ground"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
)

// TestClientPrograms does with real programs what a person does with them in the first five
// minutes: straight at a cluster, and through every endpoint. The output must be the same through
// each of them, or the step says why it differs. Without E2E_CLIENTS it takes some steps
// of kubectl and the requests of fabric8; with it, all programs, and writes how they did to that
// file. It disturbs the cluster's node, which takes no pods for a moment.
func TestClientPrograms(t *testing.T) {
	releaseOnNodes(t)
	file, words := os.Getenv("E2E_CLIENTS"), os.Getenv("E2E_PROGRAMS")
	if file != "" && !onNodes {
		t.Fatal("E2E_CLIENTS needs pods that run: make e2e-clients")
	}
	chosen := func(name string) bool {
		return words == "" || slices.ContainsFunc(strings.Split(words, ","), func(word string) bool { return strings.Contains(name, word) })
	}
	var programs []clientProgram
	if file == "" && words == "" {
		path, _ := installed.KubectlProgram("clients")
		programs = everydayPrograms(path)
	} else {
		built, err := lab.BuildClientPrograms(t.Context(), chosen, os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		programs = allPrograms(built)
	}
	ways := clientWays(t, unrecordedCluster(t), onNodes || words != "")
	var results []*programResult
	for _, program := range programs {
		if !chosen(program.title()) {
			continue
		}
		result := &programResult{program: program, steps: map[string][]stepResult{}}
		results = append(results, result)
		t.Run(program.title(), func(t *testing.T) {
			for _, way := range ways {
				if !program.on(way) {
					continue
				}
				t.Run(way.name, func(t *testing.T) { result.steps[way.name] = program.run(t, way) })
			}
			result.compare(t, ways)
		})
	}
	var text strings.Builder
	writeClients(&text, ways, results)
	t.Log("\n" + text.String())
	if file != "" && words == "" {
		if err := ground.Record(file, text.String()); err != nil {
			t.Fatal(err)
		}
	}
}

// unrecordedCluster is one that CONNECT reaches: a recorded one refuses it.
func unrecordedCluster(t *testing.T) string {
	t.Helper()
	i := slices.IndexFunc(installed.Clusters, func(cluster string) bool { return cluster != suite.RecordedCluster })
	if i < 0 {
		t.Skip("needs a cluster whose sessions are not recorded")
	}
	return installed.Clusters[i]
}

// clientWay is an endpoint as the user of a program has it.
type clientWay struct {
	name, cluster string
	cfg           *rest.Config
	// hosts is a file of names of hosts, for a name that no DNS has.
	hosts string
	// env is added to a program's environment.
	env []string
}

// Ways to the cluster. The first is what the others are compared with.
const (
	straight   = "straight"
	aggregated = "aggregated"
	byPath     = "proxy-api"
	byHost     = "host"
	byConnect  = "connect"
	onFleet    = "fleet"
)

// pathed have a path in the server's URL.
var pathed = []string{aggregated, byPath, onFleet}

// differing says for endpoints why a step differs there.
func differing(why string, ways ...string) map[string]string {
	differs := map[string]string{}
	for _, way := range ways {
		differs[way] = why
	}
	return differs
}

// clientWays are all ways. One by the cluster's host name needs names of hosts, which root can give
// a program; without them programs of this process only go there.
func clientWays(t *testing.T, cluster string, hosts bool) []clientWay {
	t.Helper()
	endpoints := map[string]*rest.Config{}
	for _, endpoint := range installed.Endpoints(cluster) {
		endpoints[endpoint.Name] = endpoint.Cfg
	}
	ways := []clientWay{
		{name: straight, cfg: endpoints["direct"]},
		{name: aggregated, cfg: endpoints["aggregated"]},
		{name: byPath, cfg: endpoints["hub-user"]},
	}
	host := cluster + "." + suite.ClusterDomain
	named := rest.CopyConfig(endpoints["hub-user"])
	address, port, err := net.SplitHostPort(installed.ProxyAPI)
	if err != nil {
		t.Fatal(err)
	}
	// The lab's certificate is for addresses and Services.
	named.Host, named.ServerName = "https://"+net.JoinHostPort(host, port), address
	named.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, installed.ProxyAPI)
	}
	way := clientWay{name: byHost, cfg: named}
	if hosts {
		way.hosts, way.env = filepath.Join(t.TempDir(), "hosts"), []string{"TLS_SERVER_NAME=" + address}
		if err := os.WriteFile(way.hosts, []byte("127.0.0.1 localhost\n"+address+" "+host+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	connect := installed.Direct(cluster)
	proxy := &url.URL{Scheme: "https", Host: installed.ProxyAPI, User: url.UserPassword("any", installed.HubToken)}
	connect.Host, connect.Proxy = "https://"+cluster+":443", http.ProxyURL(proxy)
	connect.CAData = slices.Concat(connect.CAData, []byte("\n"), installed.HubCA)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, installed.HubCA, 0o644); err != nil {
		t.Fatal(err)
	}
	ways = append(ways, way,
		// client-go's HTTP/2 does not work with HTTPS proxies, and Node trusts no CA of a kubeconfig for one.
		clientWay{name: byConnect, cfg: connect, env: []string{"DISABLE_HTTP2=true", "NODE_EXTRA_CA_CERTS=" + ca, "CLUSTER_PROXY=" + proxy.String()}},
		clientWay{name: onFleet, cfg: installed.ViewEndpoints(allView, installed.HubToken)[1].Cfg})
	for i := range ways {
		ways[i].cluster = cluster
	}
	return ways
}

// clientProgram is a program with what its users do.
type clientProgram struct {
	name, version string
	// command is what a person types, and path its file. A program that is part of this test has
	// none.
	command, path string
	// prepare writes files into the folder in which steps run.
	prepare func(dir string, v clientValues) error
	steps   []clientStep
}

func (p clientProgram) title() string { return strings.TrimSpace(p.name + " " + p.version) }

// on reports whether a program can go a way.
func (p clientProgram) on(way clientWay) bool {
	return way.name != byHost || way.hosts != "" || p.path == ""
}

// clientStep is something that a person does, and what must appear then.
type clientStep struct {
	// does is a command line. {ns} is a namespace for it, {home} that of Deployment web, {web} this
	// Deployment, {pod} one of its pods and {node} the node, each as the endpoint names it.
	does string
	// script is what a shell runs for does, if that is more.
	script string
	// want appears, all of it.
	want []string
	// keys are typed, one after another, each after its text has appeared on the screen. A step
	// whose keys are not nil runs in a terminal.
	keys []clientKey
	// run is what a part of this test does, in place of a command line.
	run func(ctx context.Context, way clientWay, v clientValues) (string, error)
	// differs says for an endpoint why the step does not work there.
	differs map[string]string
	// only is the endpoint that has the step; empty is each.
	only string
	// shown is the endpoint by which the screen belongs into the file.
	shown string
}

// String is what a person types.
func (s clientStep) String() string {
	typed := strings.ReplaceAll(s.does, "\n", " ")
	for _, key := range s.keys {
		if keys := cmp.Or(strings.TrimSuffix(key.keys, "\r"), "Enter"); key.keys != "" {
			typed += ", then " + keys
		}
	}
	return typed
}

// clientKey is what is typed, when the screen shows texts.
type clientKey struct {
	when []string
	keys string
}

// clientValues are what steps name.
type clientValues struct{ ns, home, web, pod, node, cluster, scratch string }

func (v clientValues) in(text string) string {
	return strings.NewReplacer("{ns}", v.ns, "{home}", v.home, "{web}", v.web, "{pod}", v.pod, "{node}", v.node, "{cluster}", v.cluster, "{scratch}", v.scratch).Replace(text)
}

// stepResult is how a step ended.
type stepResult struct {
	step   clientStep
	screen string
	err    error
}

// stepLimit ends a step that hangs.
const stepLimit = 2 * time.Minute

// run does the steps by one endpoint, one after the other, in a folder and a namespace of their own.
func (p clientProgram) run(t *testing.T, way clientWay) (results []stepResult) {
	t.Helper()
	cs := suite.Clientset(t, installed.Direct(way.cluster))
	nodes, err := cs.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scratch := suite.Scratch(t, cs)
	v := clientValues{cluster: way.cluster, scratch: scratch, ns: scratch, home: "default", web: "web", pod: suite.WebPod(t, cs), node: nodes.Items[0].Name}
	if way.name == onFleet {
		for _, name := range []*string{&v.ns, &v.web, &v.pod, &v.node} {
			*name += "@" + way.cluster
		}
	}
	dir := t.TempDir()
	if p.prepare != nil {
		if err := p.prepare(dir, v); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range p.steps {
		if step.only != "" && step.only != way.name {
			continue
		}
		result := stepResult{step: step}
		ctx, cancel := context.WithTimeout(t.Context(), stepLimit)
		switch {
		case step.run != nil:
			result.screen, result.err = step.run(ctx, way, v)
		case step.keys != nil:
			result.screen, result.err = p.typeKeys(ctx, dir, way, v, step)
		default:
			var out []byte
			out, result.err = p.shell(ctx, dir, way, v, cmp.Or(step.script, step.does)).CombinedOutput()
			result.screen = string(out)
		}
		cancel()
		for _, want := range step.want {
			if result.err == nil && !strings.Contains(result.screen, v.in(want)) {
				result.err = fmt.Errorf("no %q appears", v.in(want))
			}
		}
		if result.err != nil {
			t.Logf("%s: %v\n%.3000s", step, result.err, result.screen) // now, for a run that is interrupted
		}
		results = append(results, result)
	}
	return results
}

// shell runs a command line as its user would.
func (p clientProgram) shell(ctx context.Context, dir string, way clientWay, v clientValues, line string) *exec.Cmd {
	bin, kubeconfig := filepath.Join(dir, "bin"), filepath.Join(dir, "kubeconfig")
	if _, err := os.Stat(bin); err != nil {
		if err := os.Mkdir(bin, 0o755); err != nil {
			panic(err)
		}
		if err := os.Symlink(p.path, filepath.Join(bin, p.command)); err != nil {
			panic(err)
		}
		if err := suite.WriteKubeconfig(kubeconfig, way.cfg); err != nil {
			panic(err)
		}
	}
	args := []string{"sh", "-ec", v.in(line)}
	if way.hosts != "" {
		args = append([]string{"unshare", "--mount", "sh", "-ec", `mount --bind "$0" /etc/hosts; exec "$@"`, way.hosts}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second // of what a command line has left in the background
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir, "KUBECONFIG="+kubeconfig, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_STATE_HOME="+dir, "KUBECACHEDIR=")
	cmd.Env = append(cmd.Env, way.env...)
	return cmd
}

// programResult is how a program did by each endpoint.
type programResult struct {
	program clientProgram
	steps   map[string][]stepResult
}

// compare wants every step to work straight, and by each endpoint for which it does not say why it
// differs, where it must differ.
func (r *programResult) compare(t *testing.T, ways []clientWay) {
	t.Helper()
	for _, way := range ways {
		for _, result := range r.steps[way.name] {
			why := result.step.differs[way.name]
			switch {
			case result.err != nil && why == "":
				t.Errorf("%s: %s: %v", way.name, result.step, result.err)
			case result.err == nil && why != "":
				t.Errorf("%s: %s works, and it says that it differs: %s", way.name, result.step, why)
			}
		}
	}
}

const clientsHeader = `What people do with programs in the first five minutes: straight at a managed cluster, as its administrator, and as a user of the hub
through the aggregated API (aggregated), the proxy API by path (proxy-api) and by the cluster's host name (host), CONNECT (connect, with the
administrator's token inside), and a fleet view of two clusters (fleet), where steps name the cluster: NAME@CLUSTER and NAMESPACE@CLUSTER.
A step works if what must appear appears. Steps of all programs are in test/e2e/clientprograms*_test.go. Written by make e2e-clients, on real
nodes. Each program is pinned, and built or installed from its registry.

Not to be had here: virtctl and Headlamp's backend (the module proxy does not have kubevirt.io/kubevirt and Headlamp's module), and Java.
Headlamp's page and fabric8's Java client are played by a Go program that sends their requests.

`

// writeClients writes the table, each step, and screens that were asked for.
func writeClients(text *strings.Builder, ways []clientWay, results []*programResult) {
	text.WriteString(clientsHeader)
	columns := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	fmt.Fprint(columns, "PROGRAM\tVERSION")
	for _, way := range ways {
		fmt.Fprintf(columns, "\t%s", strings.ToUpper(way.name))
	}
	fmt.Fprintln(columns)
	worked, all := map[string]int{}, map[string]int{}
	for _, r := range results {
		fmt.Fprintf(columns, "%s\t%s", r.program.name, r.program.version)
		for _, way := range ways {
			n := 0
			for _, result := range r.steps[way.name] {
				if result.err == nil {
					n++
				}
			}
			worked[way.name], all[way.name] = worked[way.name]+n, all[way.name]+len(r.steps[way.name])
			fmt.Fprintf(columns, "\t%d of %d", n, len(r.steps[way.name]))
		}
		fmt.Fprintln(columns)
	}
	fmt.Fprint(columns, "all\t")
	sum, of := 0, 0
	for _, way := range ways {
		fmt.Fprintf(columns, "\t%d of %d", worked[way.name], all[way.name])
		if way.name != straight {
			sum, of = sum+worked[way.name], of+all[way.name]
		}
	}
	fmt.Fprintln(columns)
	_ = columns.Flush()
	fmt.Fprintf(text, "\nThrough the endpoints %d of %d steps work, %.1f %%.\n", sum, of, 100*float64(sum)/float64(max(of, 1)))
	for _, r := range results {
		r.write(text)
	}
}

// write writes each step of a program, and by which endpoints it differs.
func (r *programResult) write(text *strings.Builder) {
	fmt.Fprintf(text, "\n%s\n", r.program.title())
	for _, step := range r.program.steps {
		var differs []string
		for _, way := range slices.Sorted(maps.Keys(r.steps)) {
			for _, result := range r.steps[way] {
				if result.err != nil && result.step.String() == step.String() {
					differs = append(differs, way)
				}
			}
		}
		state, only := "works", ""
		if len(differs) > 0 {
			state = "differs"
		}
		if step.only != "" {
			only = step.only + ": "
		}
		fmt.Fprintf(text, "  %-8s %s%s\n", state, only, step)
		for _, way := range differs {
			why := step.differs[way]
			if why == "" {
				why = "it does not work"
			}
			fmt.Fprintf(text, "           %s: %s\n", way, why)
		}
	}
	for _, way := range slices.Sorted(maps.Keys(r.steps)) {
		for _, result := range r.steps[way] {
			if result.step.shown == way {
				fmt.Fprintf(text, "\n  The screen of %s, %s:\n\n    %s\n", result.step, way, strings.ReplaceAll(strings.TrimSpace(result.screen), "\n", "\n    "))
			}
		}
	}
}
