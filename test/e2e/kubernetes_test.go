package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/bench/ground"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/lab/nodes"
)

// fewestSpecs must have passed: fewer would say little.
const fewestSpecs = 100

// specReport is what ginkgo writes of one spec, as far as it is needed here.
type specReport struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	NumAttempts             int
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// specRun is what runs specs through one endpoint.
type specRun struct {
	suite.Endpoint
	focus string
	specs lab.Specs
	dir   string
	hosts string // the file of host names
}

// run returns every spec of the program by name; those that were left out have no
// attempts.
func (r specRun) run(ctx context.Context) (map[string]specReport, error) {
	kubeconfig, report, repositories := filepath.Join(r.dir, "kubeconfig"), filepath.Join(r.dir, "report.json"), filepath.Join(r.dir, "repositories")
	if err := suite.WriteKubeconfig(kubeconfig, r.Cfg); err != nil {
		return nil, err
	}
	if err := os.WriteFile(repositories, []byte(lab.SpecsRepositories), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-ec", `mount --bind "$0" /etc/hosts; exec "$@"`, r.hosts,
		r.specs.Program(), "--kubeconfig="+kubeconfig, "--kubectl-path="+r.specs.Kubectl(), "--provider=skeleton",
		"--ginkgo.seed=1", "--ginkgo.no-color", "--ginkgo.succinct", "--ginkgo.flake-attempts=1",
		"--ginkgo.focus="+r.focus, "--ginkgo.skip="+skipped(r.Name), "--ginkgo.timeout=45m", "--ginkgo.json-report="+report)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "KUBE_TEST_REPO_LIST="+repositories, "HOME="+r.dir)
	if r.Cfg.Proxy != nil {
		// client-go agrees on HTTP/2 with an HTTPS proxy, and then speaks HTTP/1.1 to it.
		cmd.Env = append(cmd.Env, "DISABLE_HTTP2=true")
	}
	out, err := os.Create(filepath.Join(r.dir, "output"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	ran := cmd.Run() // an error if a spec has failed, which the report has too
	content, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("running Kubernetes' specs: %v, %v; the output is in %s", ran, err, out.Name())
	}
	var suites []struct{ SpecReports []specReport }
	if err := json.Unmarshal(content, &suites); err != nil {
		return nil, err
	}
	specs := map[string]specReport{}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			if spec.LeafNodeType == "It" {
				specs[strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")] = spec
			}
		}
	}
	return specs, nil
}

// specsView is a FleetView of exactly one cluster, which is not to be told from it.
const specsView = "e2e-specs"

// specEndpoints are the ways to a cluster under names of hosts, which the specs take
// from a file of their own: what kubectl reaches at 127.0.0.1 it reaches without
// the HTTP proxy of one of the specs.
func specEndpoints(cluster string) (endpoints []suite.Endpoint, hosts string) {
	names := map[string]string{
		"direct": cluster + "." + nodes.Domain, "hub-user": "cluster-proxy-addon-user." + installed.Namespace + ".svc", "aggregated": "hub." + nodes.Domain,
	}
	for _, d := range installed.Endpoints(cluster) {
		if d.Name == "proxy-api" {
			continue // hub-user is the same endpoint, and harder: it impersonates
		}
		d.Cfg = named(d.Cfg, names[d.Name])
		endpoints = append(endpoints, d)
	}
	view := installed.ViewEndpoints(specsView, installed.HubToken)[0].Cfg
	endpoints = append(endpoints, suite.Endpoint{Name: "view", Cfg: named(view, names["hub-user"])})
	connect := installed.Direct(cluster)
	connect.Host = "https://" + cluster + ":443"
	proxy := &url.URL{Scheme: "https", Host: net.JoinHostPort(names["hub-user"], portOf(endpoints[1].Cfg)), User: url.UserPassword("any", installed.HubToken)}
	connect.Proxy = http.ProxyURL(proxy)
	connect.CAData = slices.Concat(connect.CAData, []byte("\n"), installed.HubCA)
	return append(endpoints, suite.Endpoint{Name: "connect", Cfg: connect}), "127.0.0.1 localhost " + strings.Join(slices.Sorted(maps.Values(names)), " ") + "\n"
}

// named is cfg with another name for the same host.
func named(cfg *rest.Config, name string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	server, err := url.Parse(cfg.Host)
	if err != nil {
		panic(err)
	}
	server.Host = net.JoinHostPort(name, server.Port())
	cfg.Host = server.String()
	return cfg
}

func portOf(cfg *rest.Config) string {
	server, err := url.Parse(cfg.Host)
	if err != nil {
		panic(err)
	}
	return server.Port()
}

// TestKubernetesSpecs runs Kubernetes' own e2e specs straight at a managed
// kube-apiserver and through every endpoint, and wants all of them to pass. It
// writes them to the file E2E_KUBERNETES, with what is left out. It disturbs the
// managed cluster as Kubernetes' own suite does.
func TestKubernetesSpecs(t *testing.T) {
	file := os.Getenv("E2E_KUBERNETES")
	if file == "" {
		t.Skip("takes half an hour: make e2e-kubernetes")
	}
	if !onNodes {
		t.Skip("needs pods that run: make e2e-kubernetes")
	}
	specs, err := lab.BuildSpecs(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	images, err := specs.Images(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range images {
		if err := installed.Lab.LoadImage(t.Context(), image); err != nil {
			t.Fatal(err)
		}
	}
	installed.MakeView(t, specsView, map[string]any{"clusters": map[string]any{"names": []any{installed.Clusters[0]}}})
	endpoints, names := specEndpoints(installed.Clusters[0])
	endpoints = append(endpoints, suite.Endpoint{Name: fleetColumn, Cfg: readsFleet(t, installed.Clusters)})
	endpoints = chosen(t, endpoints, os.Getenv("E2E_ENDPOINTS"))
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte(names), 0o644); err != nil {
		t.Fatal(err)
	}
	results := make([]map[string]specReport, len(endpoints))
	running, ctx := errgroup.WithContext(t.Context())
	running.SetLimit(specRunsAtOnce)
	for i, endpoint := range endpoints {
		dir, err := os.MkdirTemp("", "cluster-proxy-specs-"+endpoint.Name+"-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if !t.Failed() {
				_ = os.RemoveAll(dir)
				return
			}
			t.Logf("output and report of the specs through %s: %s", endpoint.Name, dir)
		})
		running.Go(func() (err error) {
			began := time.Now()
			results[i], err = specRun{endpoint, focusOf(endpoint.Name), specs, dir, hosts}.run(ctx)
			t.Logf("%s: %s", endpoint.Name, time.Since(began).Round(time.Second))
			return err
		})
	}
	if err := running.Wait(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	fmt.Fprint(&text, specsHeader)
	if passed := writeTable(t, &text, endpoints, results); passed < fewestSpecs {
		t.Errorf("%d specs passed straight at the kube-apiserver, want at least %d", passed, fewestSpecs)
	}
	writeLeftOut(t, &text, endpoints, results)
	t.Log("\n" + text.String())
	if err := ground.Record(file, text.String()); err != nil {
		t.Fatal(err)
	}
}

// writeTable writes how each spec ended through each endpoint, and returns how
// many passed straight.
func writeTable(t *testing.T, text io.Writer, endpoints []suite.Endpoint, results []map[string]specReport) (passed int) {
	columns := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	for _, endpoint := range endpoints {
		fmt.Fprintf(columns, "%s\t", strings.ToUpper(endpoint.Name))
	}
	fmt.Fprintln(columns, "SPEC")
	for _, name := range slices.Sorted(maps.Keys(results[0])) {
		if results[0][name].NumAttempts == 0 || results[0][name].State == "skipped" {
			continue
		}
		if results[0][name].State == "passed" {
			passed++
		}
		for i, endpoint := range endpoints {
			spec := results[i][name]
			state := spec.State
			if spec.NumAttempts == 0 {
				state = "left out"
			} else if spec.State != "passed" {
				t.Errorf("%s: %s through %s: %.1000s", name, spec.State, endpoint.Name, spec.Failure.Message)
			}
			fmt.Fprintf(columns, "%s\t", state)
		}
		fmt.Fprintln(columns, name)
	}
	if err := columns.Flush(); err != nil {
		t.Fatal(err)
	}
	return passed
}

// writeLeftOut writes by name what did not run, with the reason, and wants one for
// each spec of the two SIGs.
func writeLeftOut(t *testing.T, text io.Writer, endpoints []suite.Endpoint, results []map[string]specReport) {
	for _, reason := range leftOut {
		names := matching(results[0], regexp.MustCompile(reason.specs))
		for _, name := range names {
			delete(results[0], name)
		}
		if len(names) == 0 {
			t.Errorf("no spec is left out for %q: take it out of leftOut", reason.specs)
		}
		fmt.Fprintf(text, "\nLeft out, %d: %s\n  %s\n", len(names), reason.why, strings.Join(names, "\n  "))
	}
	for i, endpoint := range endpoints {
		var named []string
		for _, reason := range leftOutThrough[endpoint.Name] {
			names := matching(results[i], regexp.MustCompile(reason.specs))
			names = slices.DeleteFunc(names, func(name string) bool { return results[0][name].NumAttempts == 0 || slices.Contains(named, name) })
			named = append(named, names...)
			fmt.Fprintf(text, "\nLeft out through %s, %d: %s\n  %s\n", endpoint.Name, len(names), reason.why, strings.Join(names, "\n  "))
		}
	}
	for name, spec := range results[0] {
		switch {
		case !inScope.MatchString(name):
		case spec.NumAttempts == 0:
			t.Errorf("%s did not run, and leftOut does not say why", name)
		case spec.State == "skipped":
			t.Errorf("%s leaves itself out, and leftOut does not say why: %.300s", name, spec.Failure.Message)
		}
	}
}

// matching are the names of specs of specsFocus that did not run, in order.
func matching(specs map[string]specReport, pattern *regexp.Regexp) (names []string) {
	for name, spec := range specs {
		if inScope.MatchString(name) && spec.NumAttempts == 0 && pattern.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var inScope = regexp.MustCompile(specsFocus)
