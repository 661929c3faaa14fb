package lab

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
)

// The test's own binary is what the lab runs in pods: see TestMain.
const probe = "probe"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == probe {
		serveProbe(os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

// serveProbe answers with the file that --file names.
func serveProbe(args []string) {
	flags := map[string]string{}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		flags[name] = value
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, flags["--file"]) })
	server := &http.Server{Addr: "127.0.0.1:" + flags["--port"], Handler: handler, ReadHeaderTimeout: time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
}

func TestLab(t *testing.T) {
	if testing.Short() {
		t.Skip("starts whole clusters")
	}
	// With cold caches, how long the build takes is the machine's affair.
	if _, err := BuildAssets(t.Context(), "", t.Output()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if deadline, ok := t.Deadline(); ok {
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-20*time.Second))
		defer cancel()
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "lab")
	// Start waits until the clusters have joined and are available.
	l, err := Start(ctx, Options{Dir: dir, Binary: binary, GRPC: []string{"cluster2"}, LocalCluster: "local-cluster", Out: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		l.Stop()
		out, err := exec.Command("ps", "-ww", "-e", "-o", "args=").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(out), "\n") {
			if strings.Contains(line, dir) {
				t.Errorf("left running: %s", line)
			}
		}
	}()
	for name := range l.Managed {
		t.Run("workload of "+name, func(t *testing.T) { testWorkload(ctx, t, l, name) })
	}
	t.Run("pod of ours", func(t *testing.T) { testPod(ctx, t, l, "cluster1") })
}

func testWorkload(ctx context.Context, t *testing.T, l *Lab, cluster string) {
	kubectl := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		path, env := l.Kubectl(cluster)
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Env = append(append(os.Environ(), env...), "KUBECONFIG="+l.Managed[cluster].KubeconfigPath)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := kubectl("rollout", "status", "deployment/web", "--timeout=15s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := kubectl("logs", "deployment/web"); err != nil || !strings.Contains(out, cluster) {
		t.Errorf("logs say %q, %v; want lines that name %s", out, err, cluster)
	}
	if out, err := kubectl("exec", "deployment/web", "--", "sh", "-c", "echo $CLUSTER"); err != nil || strings.TrimSpace(out) != cluster {
		t.Errorf("exec says %q, %v; want %q", out, err, cluster)
	}
}

// testPod runs a pod as a chart would write it: with a token that admission
// adds, a Secret as files, and a Service in front.
func testPod(ctx context.Context, t *testing.T, l *Lab, cluster string) {
	cs, err := l.Managed[cluster].clientset()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": probe, "open-cluster-management.io/addon": "cluster-proxy"}
	meta := metav1.ObjectMeta{Name: probe, Namespace: "default", Labels: labels}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: probe, Image: "lab.invalid/probe:1", Args: []string{probe, "--port=9000", "--file=/etc/probe/answer"},
			Ports:        []corev1.ContainerPort{{ContainerPort: 9000}},
			VolumeMounts: []corev1.VolumeMount{{Name: "secret", MountPath: "/etc/probe"}},
		}},
		Volumes: []corev1.Volume{{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: probe}}}},
	}}
	if _, err := cs.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: labels,
		Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(9000)}}}}
	if _, err := cs.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(l.LogDir(), cluster+"-pods.log")
	await(ctx, t, func(context.Context) error { return contains(log, "there is no Secret default/"+probe) })
	secret := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"answer": "first"}}
	if _, err := cs.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, func(ctx context.Context) error { return answers(ctx, l, cluster, "first") })
	secret.StringData["answer"] = "second"
	if _, err := cs.CoreV1().Secrets("default").Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, func(ctx context.Context) error { return answers(ctx, l, cluster, "second") })
	if err := cs.CoreV1().Pods("default").Delete(ctx, probe, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, func(context.Context) error { return contains(log, "stopping pod default/"+probe) })
}

func await(ctx context.Context, t *testing.T, ready func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := poll(ctx, ready); err != nil {
		t.Fatal(err)
	}
}

func contains(file, text string) error {
	content, err := os.ReadFile(file)
	if err == nil && !bytes.Contains(content, []byte(text)) {
		err = fmt.Errorf("no %q in %s:\n%s", text, file, content)
	}
	return err
}

func answers(ctx context.Context, l *Lab, cluster, want string) error {
	address, err := l.ServiceAddress(cluster, "default", probe, 80)
	if err != nil {
		return err
	}
	if got, err := plainhttp.Get(ctx, "http://"+address); err != nil || got != want {
		return fmt.Errorf("the pod answers %q, %v; want %q", got, err, want)
	}
	return nil
}
