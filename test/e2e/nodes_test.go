package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// TestExecStdinEnds sends 16 MiB and ends: cat ends too, having returned every
// byte. It disturbs nothing.
func TestExecStdinEnds(t *testing.T) {
	needNodes(t)
	sent := make([]byte, 16<<20)
	if _, err := rand.Read(sent); err != nil {
		t.Fatal(err)
	}
	installed.ForEachEndpoint(t, func(t *testing.T, _ string, cfg *rest.Config) {
		for name, executor := range suite.Executors(t, cfg, "cat") {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), suite.Timeout)
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

// TestCopy copies 256 MiB out of a pod and into one with kubectl cp. It disturbs
// nothing but the disk of one pod.
func TestCopy(t *testing.T) {
	needNodes(t)
	cluster := installed.Clusters[0]
	pod := suite.WebPod(t, suite.Clientset(t, installed.Direct(cluster)))
	run := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		out, err := installed.KubectlPatiently(ctx, cluster, "", args...)
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
	run("exec", pod, "--", "sh", "-c", "dd if=/dev/urandom of=/big bs=1M count=256 2>/dev/null")
	t.Cleanup(func() {
		_, _ = installed.Kubectl(context.Background(), cluster, "", "exec", pod, "--", "rm", "-f", "/big", "/back")
	})
	local := filepath.Join(t.TempDir(), "big")
	began := time.Now()
	run("cp", "default/"+pod+":/big", local, "--retries=0")
	t.Logf("256 MiB out in %s", time.Since(began).Round(time.Second))
	file, err := os.Open(local)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	hash := sha256.New()
	if n, err := io.Copy(hash, file); err != nil || n != 256<<20 {
		t.Fatalf("copied %d bytes, %v; want 256 MiB", n, err)
	}
	want := hex.EncodeToString(hash.Sum(nil))
	if got := sumInPod("/big"); got != want {
		t.Errorf("out of the pod: SHA-256 is %s here and %s there", want, got)
	}
	began = time.Now()
	run("cp", local, "default/"+pod+":/back")
	t.Logf("256 MiB in in %s", time.Since(began).Round(time.Second))
	if got := sumInPod("/back"); got != want {
		t.Errorf("into the pod: SHA-256 is %s here and %s there", want, got)
	}
}

// TestEntrypointsWork has the agents dial the hub by its name. All suites begin with the
// load balancer, and TestAgentsPortForwardToProxyServersOnly has port-forwards. It disturbs
// all clusters: their agents are replaced, and back.
func TestEntrypointsWork(t *testing.T) {
	long.Test(t)
	needNodes(t)
	// A Service such as an administrator publishes.
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-published"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"proxy.open-cluster-management.io/component-name": "proxy-server"},
			Ports: []corev1.ServicePort{{Port: 8091, NodePort: 30091, TargetPort: intstr.FromString("agent-server")}},
		},
	}
	services := installed.Hub.CoreV1().Services(installed.Namespace)
	if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = services.Delete(context.Background(), service.Name, metav1.DeleteOptions{}) })
	if err := installed.PatchConfiguration(t, `{"spec":{"proxyServer":{"entrypoint":{"type":"Hostname","hostname":{"value":"hub.lab"},"port":30091,"loadBalancerService":null}}}}`); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range installed.Clusters {
		installed.AgentsFollow(t, cluster, "--proxy-server-host=hub.lab")
		suite.WantPods(t, installed.ThroughProxyAPI(cluster))
	}
}

// TestManagedClusterLeavesAndReturns deletes a ManagedCluster as an administrator
// of OCM does, and lets the cluster register again. It disturbs one cluster,
// which leaves the hub for a while.
func TestManagedClusterLeavesAndReturns(t *testing.T) {
	long.Test(t)
	needNodes(t)
	cluster := installed.Clusters[len(installed.Clusters)-1]
	if err := installed.ManagedClusters.Delete(t.Context(), cluster, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, cluster+" gone from the hub", func() error {
		if _, err := installed.ManagedClusters.Get(t.Context(), cluster, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the ManagedCluster is there: %v", err)
		}
		return installed.Gone(cluster)
	})
	suite.Eventually(t, "404 for a cluster that is gone", func() error {
		cfg := installed.ThroughProxyAPI(cluster)
		cfg.BearerToken = installed.HubToken
		resp, s, err := suite.TryStatus(t.Context(), cfg, "/version")
		if err == nil && resp.StatusCode != http.StatusNotFound {
			err = fmt.Errorf("answered %d: %s", resp.StatusCode, s.Message)
		}
		return err
	})
	if err := installed.Lab.Rejoin(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, cluster+" Available", func() error { return installed.AddonAvailable(t.Context(), cluster) })
	suite.Eventually(t, cluster+" reachable", func() error { return installed.Reachable(t.Context(), cluster) })
}
