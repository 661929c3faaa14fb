//go:build benchfleet

package fleet

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const (
	// benchNamespace has the pods that are listed, and watchedNamespace those that change:
	// a watch begins with all of its namespace.
	benchNamespace   = "bench-fleet"
	watchedNamespace = "bench-fleet-watched"
	podsPath         = "/api/v1/namespaces/" + benchNamespace + "/pods"
	watchedPath      = "/api/v1/namespaces/" + watchedNamespace + "/pods"
	podsEach         = 2000
	watchedEach      = 20
	// sentAt is the annotation that says when a pod was changed.
	sentAt = "bench/sent"
)

// benchPod is a pod that nothing schedules. The API server makes 9.5 KB of JSON of it.
func benchPod(cluster string, i int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("web-%s-7c9d8f6b5-%05d", cluster, i),
			Labels:      map[string]string{"app": "web", "pod-template-hash": "7c9d8f6b5", "shard": fmt.Sprint(i % 15)},
			Annotations: map[string]string{sentAt: "0", "prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
		},
		Spec: corev1.PodSpec{SchedulerName: "none", AutomountServiceAccountToken: ptr.To(false)},
	}
	for at, name := range []string{"app", "sidecar"} {
		c := corev1.Container{Name: name, Image: "registry.example.org/shop/" + name + ":v1.2.3", Command: []string{"/" + name, "--listen=:8080"}, Ports: []corev1.ContainerPort{{Name: name, ContainerPort: int32(8080 + at)}}}
		for n := range 24 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", n), Value: strings.Repeat("v", 36)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// made are the namespaces that have their pods.
var made = map[string]bool{}

// makePods makes as many pods in a namespace of each cluster, unless they are there. They
// stay for the rows that follow, and go with the lab.
func makePods(t *testing.T, namespace string, each int) {
	t.Helper()
	if made[namespace] {
		return
	}
	for _, cluster := range benchClusters() {
		t.Logf("making %d pods on %s", each, cluster)
		cs := suite.Clientset(t, load.Installed.Direct(cluster))
		awaitNamespace(t, cs, namespace)
		pods := cs.CoreV1().Pods(namespace)
		group, ctx := errgroup.WithContext(t.Context())
		group.SetLimit(16)
		for i := range each {
			group.Go(func() error {
				_, err := pods.Create(ctx, benchPod(cluster, i), metav1.CreateOptions{})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatalf("making pods on %s: %v", cluster, err)
		}
	}
	made[namespace] = true
}

// awaitNamespace makes a namespace, and returns when pods can be made in it.
func awaitNamespace(t *testing.T, cs *kubernetes.Clientset, name string) {
	t.Helper()
	_, err := cs.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	suite.Eventually(t, "a service account for pods", func() error {
		_, err := cs.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
}
