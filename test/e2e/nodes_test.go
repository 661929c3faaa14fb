package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// needNodes skips what only real nodes can show.
func needNodes(t *testing.T) {
	t.Helper()
	if !onNodes {
		t.Skip("needs real nodes: make e2e")
	}
}

// executors are the two ways to run a command in a pod of Deployment web.
func executors(t *testing.T, cfg *rest.Config, command ...string) map[string]remotecommand.Executor {
	t.Helper()
	cs := clientset(t, cfg)
	request := cs.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(webPod(t, cs)).SubResource("exec").
		Param("stdin", "true").Param("stdout", "true").Param("stderr", "true")
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

func TestExecExitCode(t *testing.T) {
	needNodes(t)
	forEachDoor(t, func(t *testing.T, _ string, cfg *rest.Config) {
		for name, executor := range executors(t, cfg, "sh", "-c", "exit 42") {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard})
				var exit exec.CodeExitError
				if !errors.As(err, &exit) || exit.Code != 42 {
					t.Errorf("got %v, want exit code 42", err)
				}
			})
		}
	})
}

// TestExecStdinEnds sends 16 MiB and ends: cat ends too, having returned every
// byte.
func TestExecStdinEnds(t *testing.T) {
	needNodes(t)
	sent := make([]byte, 16<<20)
	if _, err := rand.Read(sent); err != nil {
		t.Fatal(err)
	}
	forEachDoor(t, func(t *testing.T, _ string, cfg *rest.Config) {
		for name, executor := range executors(t, cfg, "cat") {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				var got, stderr bytes.Buffer
				if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: bytes.NewReader(sent), Stdout: &got, Stderr: &stderr}); err != nil {
					t.Fatal(err, stderr.String())
				}
				if !bytes.Equal(got.Bytes(), sent) {
					t.Errorf("sent %d bytes, got %d, and not the same", len(sent), got.Len())
				}
			})
		}
	})
}

// TestCopy copies 1 GiB out of a pod and into one with kubectl cp.
func TestCopy(t *testing.T) {
	needNodes(t)
	cluster := suite.clusters[0]
	pod := webPod(t, clientset(t, suite.direct(cluster)))
	run := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		out, err := suite.kubectlPatiently(ctx, cluster, "", args...)
		if err != nil {
			t.Fatalf("kubectl %q: %v\n%s", args, err, out)
		}
		return out
	}
	sumInPod := func(file string) string {
		t.Helper()
		sum, _, _ := strings.Cut(run("exec", pod, "--", "sha256sum", file), " ")
		return sum
	}
	run("exec", pod, "--", "sh", "-c", "dd if=/dev/urandom of=/big bs=1M count=1024 2>/dev/null")
	t.Cleanup(func() {
		_, _ = suite.kubectl(context.Background(), cluster, "", "exec", pod, "--", "rm", "-f", "/big", "/back")
	})
	local := filepath.Join(t.TempDir(), "big")
	began := time.Now()
	run("cp", "default/"+pod+":/big", local, "--retries=0")
	t.Logf("1 GiB out in %s", time.Since(began).Round(time.Second))
	file, err := os.Open(local)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	hash := sha256.New()
	if n, err := io.Copy(hash, file); err != nil || n != 1<<30 {
		t.Fatalf("copied %d bytes, %v; want 1 GiB", n, err)
	}
	want := hex.EncodeToString(hash.Sum(nil))
	if got := sumInPod("/big"); got != want {
		t.Errorf("out of the pod: SHA-256 is %s here and %s there", want, got)
	}
	began = time.Now()
	run("cp", local, "default/"+pod+":/back")
	t.Logf("1 GiB in in %s", time.Since(began).Round(time.Second))
	if got := sumInPod("/back"); got != want {
		t.Errorf("into the pod: SHA-256 is %s here and %s there", want, got)
	}
}

// agentsFollow waits until a cluster's agents all run with an argument and are
// ready, and the cluster is reachable.
func agentsFollow(t *testing.T, cluster, argument string) {
	t.Helper()
	managed := clientset(t, suite.direct(cluster))
	eventually(t, cluster+"'s agents with "+argument, func() error {
		deployment, err := managed.AppsV1().Deployments(suite.agentNamespace).Get(t.Context(), "cluster-proxy-proxy-agent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if args := fmt.Sprint(deployment.Spec.Template.Spec.Containers[0].Args); !strings.Contains(args, argument) {
			return fmt.Errorf("arguments are %s", args)
		}
		return rolledOut(deployment)
	})
	eventually(t, cluster+" reachable", func() error { return reachable(t.Context(), cluster) })
}

// rolledOut says what a Deployment's rollout still waits for.
func rolledOut(d *appsv1.Deployment) error {
	want := *d.Spec.Replicas
	if s := d.Status; d.Generation != s.ObservedGeneration || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.Replicas != want {
		return fmt.Errorf("deployment %s: want %d replicas, status is %d updated, %d available, %d in all", d.Name, want, s.UpdatedReplicas, s.AvailableReplicas, s.Replicas)
	}
	return nil
}

// TestEntrypointsWork has the agents dial the hub by each kind of entrypoint in
// turn. All suites begin with the load balancer.
func TestEntrypointsWork(t *testing.T) {
	needNodes(t)
	// What an administrator would publish himself.
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-published"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"proxy.open-cluster-management.io/component-name": "proxy-server"},
			Ports: []corev1.ServicePort{{Port: 8091, NodePort: 30091, TargetPort: intstr.FromString("agent-server")}},
		},
	}
	services := suite.hub.CoreV1().Services(suite.namespace)
	if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = services.Delete(context.Background(), service.Name, metav1.DeleteOptions{}) })
	for _, test := range []struct{ name, entrypoint, want string }{
		{"hostname", `{"type":"Hostname","hostname":{"value":"hub.lab"},"port":30091,"loadBalancerService":null}`, "--proxy-server-host=hub.lab"},
		{"port forward", `{"type":"PortForward","hostname":null,"loadBalancerService":null}`, "--enable-port-forward-proxy=true"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := patchConfiguration(t, `{"spec":{"proxyServer":{"entrypoint":`+test.entrypoint+`}}}`); err != nil {
				t.Fatal(err)
			}
			for _, cluster := range suite.clusters {
				agentsFollow(t, cluster, test.want)
				wantPods(t, suite.throughProxyAPI(cluster))
			}
		})
	}
}

// TestAddonDisableEnable takes a cluster out of the placement and puts it back.
func TestAddonDisableEnable(t *testing.T) {
	cluster := suite.clusters[len(suite.clusters)-1]
	placements := suite.placements.Namespace(suite.namespace)
	predicate := fmt.Sprintf(`{"spec":{"predicates":[{"requiredClusterSelector":{"labelSelector":{"matchExpressions":[{"key":"name","operator":"NotIn","values":[%q]}]}}}]}}`, cluster)
	labelled := fmt.Appendf(nil, `{"metadata":{"labels":{"name":%q}}}`, cluster)
	if _, err := suite.managedClusters.Patch(t.Context(), cluster, types.MergePatchType, labelled, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	enable := func() {
		if _, err := placements.Patch(context.Background(), "cluster-proxy-placement", types.MergePatchType, []byte(`{"spec":{"predicates":null}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
		eventually(t, cluster+" Available", func() error { return addonAvailable(context.Background(), cluster) })
		eventually(t, cluster+" reachable", func() error { return reachable(context.Background(), cluster) })
	}
	t.Cleanup(enable)
	if _, err := placements.Patch(t.Context(), "cluster-proxy-placement", types.MergePatchType, []byte(predicate), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the addon gone from "+cluster, func() error { return gone(cluster) })
	for _, other := range suite.clusters {
		if other != cluster {
			if err := reachable(t.Context(), other); err != nil {
				t.Errorf("%s suffers from what happened to %s: %v", other, cluster, err)
			}
		}
	}
}

// gone says what of the addon is still on a cluster, and nil when nothing is.
func gone(cluster string) error {
	ctx := context.Background()
	if _, err := suite.addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(ctx, identity.AddonName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the ManagedClusterAddOn is there: %v", err)
	}
	cs, err := kubernetes.NewForConfig(suite.direct(cluster))
	if err != nil {
		return err
	}
	pods, err := cs.CoreV1().Pods(suite.agentNamespace).List(ctx, metav1.ListOptions{})
	if err == nil && len(pods.Items) > 0 {
		err = fmt.Errorf("%d pods are there", len(pods.Items))
	}
	return err
}

// TestManagedClusterLeavesAndReturns deletes a ManagedCluster as an
// administrator of OCM does, and lets the cluster register again.
func TestManagedClusterLeavesAndReturns(t *testing.T) {
	needNodes(t)
	cluster := suite.clusters[len(suite.clusters)-1]
	if err := suite.managedClusters.Delete(t.Context(), cluster, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, cluster+" gone from the hub", func() error {
		if _, err := suite.managedClusters.Get(t.Context(), cluster, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the ManagedCluster is there: %v", err)
		}
		return gone(cluster)
	})
	eventually(t, "404 for a cluster that is gone", func() error {
		cfg := suite.throughProxyAPI(cluster)
		cfg.BearerToken = suite.hubToken
		resp, s, err := tryStatus(t.Context(), cfg, "/version")
		if err == nil && resp.StatusCode != http.StatusNotFound {
			err = fmt.Errorf("answered %d: %s", resp.StatusCode, s.Message)
		}
		return err
	})
	if err := suite.lab.Rejoin(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	eventually(t, cluster+" Available", func() error { return addonAvailable(t.Context(), cluster) })
	eventually(t, cluster+" reachable", func() error { return reachable(t.Context(), cluster) })
}
