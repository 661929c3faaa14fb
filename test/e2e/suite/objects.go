package suite

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// WantPods wants to find pods in namespace default.
func WantPods(t *testing.T, cfg *rest.Config) {
	t.Helper()
	pods, err := Clientset(t, cfg).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		t.Error("no pods")
	}
}

// Executors are the two ways to run a command in a pod of Deployment web.
func Executors(t *testing.T, cfg *rest.Config, command ...string) map[string]remotecommand.Executor {
	t.Helper()
	return executors(t, cfg, true, command)
}

// ExecutorsWithoutInput are Executors of a command that reads nothing. If it has an input, the
// input's end may reach a kube-apiserver when that has closed the connection behind the command's
// output, and then takes the rest of the output away.
func ExecutorsWithoutInput(t *testing.T, cfg *rest.Config, command ...string) map[string]remotecommand.Executor {
	t.Helper()
	return executors(t, cfg, false, command)
}

func executors(t *testing.T, cfg *rest.Config, stdin bool, command []string) map[string]remotecommand.Executor {
	t.Helper()
	cs := Clientset(t, cfg)
	request := cs.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(WebPod(t, cs)).SubResource("exec").
		Param("stdin", fmt.Sprint(stdin)).Param("stdout", "true").Param("stderr", "true")
	for _, word := range command {
		request = request.Param("command", word)
	}
	spdyExec, err := remotecommand.NewSPDYExecutor(cfg, http.MethodPost, request.URL())
	if err != nil {
		t.Fatal(err)
	}
	wsExec, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, request.URL().String())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]remotecommand.Executor{"spdy": spdyExec, "websocket": wsExec}
}

// ShellWhileInput is a script of sh that runs another, which never ends by itself, until the
// standard input ends, and then fails. Otherwise each stream that is cut off would leave its
// command behind: a kubelet lets commands go on that nobody hears any more.
func ShellWhileInput(script string) string {
	return "(" + script + ") & cat >/dev/null; kill $!; wait; exit 1"
}

// Talk is a script of sh that says something again and again while it has an input.
var Talk = ShellWhileInput("while true; do echo on; sleep 0.2; done")

// RolledOut says what a Deployment's rollout still waits for.
func RolledOut(d *appsv1.Deployment) error {
	want := *d.Spec.Replicas
	if s := d.Status; d.Generation != s.ObservedGeneration || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.Replicas != want {
		return fmt.Errorf("deployment %s: want %d replicas, status is %d updated, %d available, %d in all", d.Name, want, s.UpdatedReplicas, s.AvailableReplicas, s.Replicas)
	}
	return nil
}

// Clientset ends the test if cfg is no good.
func Clientset(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// Scratch makes a namespace for one test and removes it afterwards.
func Scratch(t *testing.T, cs *kubernetes.Clientset) string {
	t.Helper()
	ns, err := cs.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cs.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{})
	})
	return ns.Name
}

// WebPod waits for a running pod of Deployment web, and returns the name by which that may be
// written to: in a view of several clusters with its cluster.
func WebPod(t *testing.T, cs *kubernetes.Clientset) string {
	t.Helper()
	var name string
	Eventually(t, "a running pod of Deployment web", func() error {
		pods, err := cs.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				name = pod.Name
				if cluster := pod.Annotations[fleet.AnnotationCluster]; cluster != "" && !strings.Contains(name, "@") {
					name += "@" + cluster
				}
				return nil
			}
		}
		return fmt.Errorf("%d pods, none running", len(pods.Items))
	})
	return name
}
