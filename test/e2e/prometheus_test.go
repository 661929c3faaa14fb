package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// testPrometheus is a Prometheus with the chart's rules in a hurry: scraped and
// evaluated each second, and alerts wait for a second.
type testPrometheus struct {
	t            *testing.T
	url, targets string
}

func startPrometheus(t *testing.T) *testPrometheus {
	t.Helper()
	programs, err := lab.BuildPrometheus(context.WithoutCancel(t.Context()), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(filepath.Join(monitoringFiles, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// As the chart does on a hub without a fleet index; test/alerts has its group.
	installedRules, _, ok := strings.Cut(string(rules), "- name: cluster-proxy-fleet-index\n")
	if !ok {
		t.Fatal("the rules of the fleet index are not the last group")
	}
	hurried := regexp.MustCompile(`(?m)^(    for: ).*$`).ReplaceAllString(installedRules, "${1}1s")
	hurried = strings.NewReplacer("[5m]", "[10s]", "[30m]", "[12s]", "[1h]", "[15s]", "[2h]", "[15s]", "[6h]", "[20s]", "[1d]", "[25s]", "[3d]", "[30s]").Replace(hurried)
	dir := t.TempDir()
	p := &testPrometheus{t: t, targets: filepath.Join(dir, "targets.json")}
	p.start(programs, dir, map[string]string{
		"rules.yaml": hurried,
		"prometheus.yaml": "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n" +
			"scrape_configs:\n- {job_name: lab, file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]}\n" + agentJob(t, dir),
	})
	return p
}

// start runs a Prometheus with files in a folder, of which prometheus.yaml is its
// configuration, until the test ends.
func (p *testPrometheus) start(programs lab.Prometheus, dir string, files map[string]string) {
	p.t.Helper()
	for file, content := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports.Take(p.t))
	p.url = "http://" + address + "/api/v1/"
	running := program.Start(p.t, "prometheus", exec.Command(programs.Program(), "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn"))
	running.Await(p.t, "Prometheus", func() error {
		_, err := p.count("vector(1)")
		return err
	})
}

// metricsPorts are the ports that serve /metrics, by kind.
var metricsPorts = map[string]int32{"addon manager": 58080, "proxy server": 8092, "proxy API": 8000, "proxy agent": 8093}

// scrape tells Prometheus where the processes are now, but those of one kind. Pods
// that were started again have other addresses.
func (p *testPrometheus) scrape(ctx context.Context, but string) error {
	type target struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var all []target
	for i, cluster := range installed.Clusters {
		for _, kind := range installed.Kinds(p.t, cluster) {
			at := "hub"
			if kind.Name == "proxy agent" {
				at = cluster
			}
			if kind.Name == but || at == "hub" && i > 0 {
				continue
			}
			names, err := kind.Pods(ctx)
			if err != nil {
				return err
			}
			for _, name := range names {
				pod, err := kind.Client.CoreV1().Pods(kind.Namespace).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				address, err := installed.Lab.PodAddress(at, pod.UID, metricsPorts[kind.Name])
				if err != nil {
					continue // it does not run
				}
				all = append(all, target{[]string{address}, map[string]string{"job": kind.Name, "pod": name, "namespace": kind.Namespace}})
			}
		}
	}
	content, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.targets+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(p.targets+".new", p.targets)
}

// count is how many series a query has now.
func (p *testPrometheus) count(query string) (int, error) {
	var answer struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if err := p.get("query?query="+url.QueryEscape(query), &answer); err != nil {
		return 0, err
	}
	if answer.Error != "" {
		return 0, fmt.Errorf("%s: %s", query, answer.Error)
	}
	return len(answer.Data.Result), nil
}

// alerts are those that fire, by name and what they are about. A text that cannot be
// made, or that leaves something open, is an error.
func (p *testPrometheus) alerts() (map[string]bool, error) {
	var answer struct {
		Data struct {
			Alerts []struct {
				State               string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := p.get("alerts", &answer); err != nil {
		return nil, err
	}
	firing := map[string]bool{}
	for _, alert := range answer.Data.Alerts {
		text := alert.Annotations["summary"] + alert.Annotations["description"]
		if strings.Contains(text, "{{") || strings.Contains(text, "<error") || strings.Contains(text, "<no value>") || strings.Contains(text, "<nil>") {
			return nil, fmt.Errorf("%s says %q", alert.Labels["alertname"], text)
		}
		if alert.State == "firing" {
			l := alert.Labels
			firing[strings.TrimSpace(l["alertname"]+" "+l["managed_cluster"]+l["process"]+l["reason"])] = true
		}
	}
	return firing, nil
}

func (p *testPrometheus) get(path string, into any) error {
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// agentJob is the job of docs/how-to/monitor.md for the agents, through the tunnel, with the files that it needs. They
// are scraped by HubUser, who gets the right to that.
func agentJob(t *testing.T, dir string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/monitor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, job, ok := strings.Cut(string(page), "    scrape_configs:\n")
	job, _, ok1 := strings.Cut(job, "\n\n")
	if !ok || !ok1 {
		t.Fatal("docs/how-to/monitor.md has no scrape_configs any more")
	}
	bindings := installed.Hub.RbacV1().ClusterRoleBindings()
	const binding = "e2e-scrapes-agents"
	t.Cleanup(func() { _ = bindings.Delete(context.Background(), binding, metav1.DeleteOptions{}) })
	if _, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: binding},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: suite.HubUser, Namespace: "default"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-proxy-metrics-reader"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hub := installed.HubConfig()
	if err := rest.LoadTLSFiles(hub); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{"token": []byte(installed.HubToken), "ca.crt": hub.CAData} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, here := range map[string]string{"/var/run/secrets/kubernetes.io/serviceaccount/": "", "kubernetes.default.svc:443": strings.TrimPrefix(hub.Host, "https://")} {
		if !strings.Contains(job, path) {
			t.Fatalf("the job of docs/how-to/monitor.md has no %s:\n%s", path, job)
		}
		job = strings.ReplaceAll(job, path, here)
	}
	return strings.ReplaceAll("\n"+job, "\n    ", "\n") + "\n"
}

// scrapesThroughTunnel is an error unless agents of as many clusters are scraped on the hub, and
// say which pod they are.
func (p *testPrometheus) scrapesThroughTunnel(clusters int) error {
	for query, want := range map[string]int{
		`up{job="cluster-proxy-agents"} == 1`: clusters,
		`count by (managed_cluster) (cluster_proxy_agent_owner_policy_invalid{job="cluster-proxy-agents", pod!=""})`: clusters,
	} {
		if n, err := p.count(query); err != nil || n != want {
			return fmt.Errorf("%s has %d series, %w, want %d", query, n, err, want)
		}
	}
	return nil
}
