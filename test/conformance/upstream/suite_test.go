//go:build linux

package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/bench/ground"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

const (
	root      = "../../.."
	loopback  = "loopback" // the suite's name of the hub as a managed cluster
	namespace = "open-cluster-management-addon"
	job       = "cluster-proxy-e2e"
)

// values are those with which the chart is installed.
var values = []string{
	"registry=quay.io/open-cluster-management",
	// The suite's Makefile sets these, and the image's name.
	"tag=lab",
	"proxyServer.entrypointAddress=proxy-entrypoint." + namespace + ".svc", "proxyServer.port=8091",
	"enableServiceProxy=true", "userServer.enabled=true",
	// README tells those who come from upstream to set these.
	"proxyAPI.allowAuthenticated=true",
	"exposedServices[0].namespace=default", "exposedServices[0].service=hello-world", "exposedServices[0].anonymous=true",
	"exposedServices[1].namespace=default", "exposedServices[1].service=hello-world-https", "exposedServices[1].anonymous=true",
}

// jobChanges are made in the suite's Job; each text must be there once.
var jobChanges = []struct{ from, to string }{
	// Some cases must fail, and then all would run a second time.
	{"backoffLimit: 1", "backoffLimit: 0"},
	{"            - -ginkgo.v\n", "            - -ginkgo.v\n            - -ginkgo.no-color\n            - -ginkgo.json-report=" + reportDir + "/report.json\n"},
	{"          resources:\n", "          volumeMounts: [{name: report, mountPath: " + reportDir + "}]\n          resources:\n"},
	{"      containers:\n", "      volumes: [{name: report, hostPath: {path: $REPORT, type: Directory}}]\n      containers:\n"},
}

const reportDir = "/report"

// TestUpstreamSuite runs the suite and writes its result to the file that
// $CONFORMANCE_UPSTREAM names.
func TestUpstreamSuite(t *testing.T) {
	file := os.Getenv("CONFORMANCE_UPSTREAM")
	if file == "" {
		t.Skip("runs the suite of OCM's own cluster-proxy on real nodes: make conformance-upstream")
	}
	list, err := os.ReadFile(failingFile)
	if err != nil {
		t.Fatal(err)
	}
	failing, err := readFailing(string(list))
	if err != nil {
		t.Fatal(err)
	}
	suite, err := lab.BuildUpstreamSuite(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	report := start(t, suite).run(t, suite)
	results, err := readReport(report)
	if err != nil {
		t.Fatal(err)
	}
	text := table(lab.UpstreamVersion, results, failing)
	t.Log("\n" + text)
	if err := ground.Record(file, text); err != nil {
		t.Error(err)
	}
	if err := judge(results, failing); err != nil {
		t.Error(err)
	}
}

// hub is one that manages itself, with our chart installed.
type hub struct {
	lab  *lab.Lab
	kube *kubernetes.Clientset
}

// start starts the lab with the suite's images and Services and installs the chart.
func start(t *testing.T, suite lab.UpstreamSuite) *hub {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "cluster-proxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/cluster-proxy")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the binary: %v\n%s", err, out)
	}
	l, err := lab.Start(t.Context(), lab.Options{Dir: filepath.Join(dir, "lab"), Clusters: []string{}, LocalCluster: loopback, Binary: binary, Nodes: true, Out: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	h := &hub{lab: l}
	if h.kube, err = kubernetes.NewForConfig(l.Hub.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keepLogs(t, l) })
	images, err := suite.Images(l, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range images {
		if err := l.LoadImage(t.Context(), image); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range []string{"hello-world", "hello-world-https"} {
		h.apply(t, read(t, suite, pod+".yaml"))
	}
	if err := l.InstallChart(t.Context(), identity.AddonName, namespace, filepath.Join(root, "charts/cluster-proxy"), values...); err != nil {
		t.Fatal(err)
	}
	h.awaitReady(t)
	return h
}

// awaitReady waits for what the suite's environment waits for, and for the addon.
func (h *hub) awaitReady(t *testing.T) {
	t.Helper()
	addons, err := addonclient.NewForConfig(h.lab.Hub.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hello-world", "hello-world-https"} {
		eventually(t, "pod "+name, func() error {
			pod, err := h.kube.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("it is not ready: %v", pod.Status.ContainerStatuses)
		})
	}
	eventually(t, "the addon on "+loopback, func() error {
		addon, err := addons.AddonV1alpha1().ManagedClusterAddOns(loopback).Get(t.Context(), identity.AddonName, metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionTrue(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable) {
			err = fmt.Errorf("it is not Available: %v", addon.Status.Conditions)
		}
		return err
	})
}

// run runs the suite as its Job and returns its report.
func (h *hub) run(t *testing.T, suite lab.UpstreamSuite) []byte {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "report")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	manifest := read(t, suite, "job.yaml")
	for _, change := range jobChanges {
		if got := strings.Count(manifest, change.from); got != 1 {
			t.Fatalf("the suite's Job has %q %d times, want once", change.from, got)
		}
		manifest = strings.Replace(manifest, change.from, strings.ReplaceAll(change.to, "$REPORT", folder), 1)
	}
	h.apply(t, manifest)
	ended := func() error {
		j, err := h.kube.BatchV1().Jobs(namespace).Get(t.Context(), job, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range j.Status.Conditions {
			if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("the suite is still running")
	}
	err := wait.Poll{Every: time.Second, For: 20 * time.Minute}.Try(t.Context(), ended)
	log := h.kubectl(t, "", "logs", "--namespace="+namespace, "job/"+job)
	file, err1 := os.CreateTemp("", "cluster-proxy-upstream-*.log")
	if err := errors.Join(err, err1); err != nil {
		t.Fatalf("%v; the suite says:\n%s", err, log)
	}
	defer file.Close()
	if _, err := file.Write(log); err != nil {
		t.Error(err)
	}
	t.Logf("the output of the suite is in %s", file.Name())
	report, err := os.ReadFile(filepath.Join(folder, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// read returns a manifest of the suite.
func read(t *testing.T, suite lab.UpstreamSuite, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(suite.Source, "env", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// apply applies manifests on the hub.
func (h *hub) apply(t *testing.T, manifest string) {
	t.Helper()
	h.kubectl(t, manifest, "apply", "-f", "-")
}

func (h *hub) kubectl(t *testing.T, stdin string, args ...string) []byte {
	t.Helper()
	path, env := h.lab.Kubectl("hub")
	cmd := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig=" + h.lab.Hub.KubeconfigPath}, args...)...)
	cmd.Env, cmd.Stdin = append(os.Environ(), env...), strings.NewReader(stdin)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %q: %v\n%s", args, err, said.String())
	}
	return out
}

// keepLogs copies the logs of a failed run to where they outlive it.
func keepLogs(t *testing.T, l *lab.Lab) {
	if !t.Failed() {
		return
	}
	dir, err := os.MkdirTemp("", "cluster-proxy-upstream-logs-")
	if err == nil {
		err = errors.Join(os.CopyFS(filepath.Join(dir, "logs"), os.DirFS(l.LogDir())), os.CopyFS(filepath.Join(dir, "pods"), os.DirFS(l.PodLogDir("hub"))))
	}
	t.Logf("logs of the lab: %s, %v", dir, err)
}

func eventually(t *testing.T, what string, ready func() error) {
	t.Helper()
	wait.Poll{Every: time.Second, For: 5 * time.Minute}.Success(t, what, ready)
}
