package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sendSignal sends a signal to the addon's process in a pod. In a lab with nodes the process
// is in the pod's control group, and in one without it runs in the pod's folder.
func sendSignal(uid types.UID, signal syscall.Signal) (sent int, _ error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, process := range processes {
		group, _ := os.ReadFile(filepath.Join(process, "cgroup")) // a process may end meanwhile
		folder, _ := os.Readlink(filepath.Join(process, "cwd"))
		comm, _ := os.ReadFile(filepath.Join(process, "comm"))
		inPod := strings.Contains(string(group), "pod"+string(uid)) || strings.HasSuffix(folder, "/pods/"+string(uid))
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil || !inPod || strings.TrimSpace(string(comm)) != "cluster-proxy" {
			continue
		}
		if syscall.Kill(pid, signal) == nil {
			sent++
		}
	}
	return sent, nil
}

// Signal sends a signal to the processes of all pods of a kind.
func (k Kind) Signal(ctx context.Context, with syscall.Signal) error {
	names, err := k.Pods(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := k.SignalPod(ctx, name, with); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("there are no pods of the %s", k.Name)
	}
	return nil
}

// SignalPod sends a signal to the process of one pod.
func (k Kind) SignalPod(ctx context.Context, name string, with syscall.Signal) error {
	pod, err := k.Client.CoreV1().Pods(k.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	n, err := sendSignal(pod.UID, with)
	if err == nil && n == 0 {
		err = fmt.Errorf("pod %q of the %s has no process", name, k.Name)
	}
	return err
}

// Kind returns one of the kinds of the addon's pods.
func (s *Suite) Kind(t *testing.T, cluster, name string) Kind {
	t.Helper()
	for _, k := range s.Kinds(t, cluster) {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("the addon has no %s", name)
	return Kind{}
}

// FreezeAgents stops the processes of a cluster's agents without ending them (SIGSTOP):
// their connections stay open, and nothing answers. The result lets them go on, which the
// end of the test does as well.
func (s *Suite) FreezeAgents(t *testing.T, cluster string) (thaw func()) {
	t.Helper()
	agents := s.Kind(t, cluster, "proxy agent")
	thaw = func() {
		if err := agents.Signal(context.Background(), syscall.SIGCONT); err != nil {
			t.Error("letting the agents go on:", err)
		}
	}
	t.Cleanup(func() {
		thaw()
		Eventually(t, cluster+" reachable again", func() error { return s.Reachable(context.Background(), cluster) })
	})
	if err := agents.Signal(t.Context(), syscall.SIGSTOP); err != nil {
		t.Fatal("freezing the agents:", err)
	}
	return thaw
}

// KillProxyAPI kills the processes of the proxy API, without a word, and returns when
// others serve in their place.
func (s *Suite) KillProxyAPI(t *testing.T) {
	t.Helper()
	k := s.Kind(t, s.Clusters[0], "proxy API")
	before, err := k.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range before {
		k.Kill(t, name)
	}
	s.awaitOtherProxyAPI(t.Context(), t, k, before)
}

// RestartProxyAPI replaces the pods of the proxy API, as kubectl rollout restart does, and
// returns when the processes of the former ones have ended.
func (s *Suite) RestartProxyAPI(t *testing.T) {
	t.Helper()
	k := s.Kind(t, s.Clusters[0], "proxy API")
	before, err := k.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().Format(time.RFC3339Nano))
	if _, err := k.Client.AppsV1().Deployments(k.Namespace).Patch(t.Context(), k.deployment, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitOtherProxyAPI(t.Context(), t, k, before)
}

// ScaleProxyAPI runs so many replicas of the proxy API until the end of the test.
func (s *Suite) ScaleProxyAPI(t *testing.T, replicas int32) {
	t.Helper()
	k := s.Kind(t, s.Clusters[0], "proxy API")
	deployments := k.Client.AppsV1().Deployments(k.Namespace)
	scale := func(ctx context.Context, to int32) (was int32) {
		t.Helper()
		now, err := deployments.GetScale(ctx, k.deployment, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		was, now.Spec.Replicas = now.Spec.Replicas, to
		if _, err := deployments.UpdateScale(ctx, k.deployment, now, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		Eventually(t, fmt.Sprintf("%d replicas of the proxy API", to), func() error {
			deployment, err := deployments.Get(ctx, k.deployment, metav1.GetOptions{})
			if err == nil {
				err = RolledOut(deployment)
			}
			if err == nil && s.Lab != nil {
				err = k.Signal(ctx, 0)
			}
			// One that is taken away serves for seconds yet, and ends the streams that it has.
			if err == nil && s.Lab != nil && !s.options.Nodes {
				err = s.Lab.PodsEnded(ctx, "hub")
			}
			return err
		})
		return was
	}
	was := scale(t.Context(), replicas)
	t.Cleanup(func() { scale(context.Background(), was) })
}

// awaitOtherProxyAPI waits until the former pods of the proxy API are gone with their
// processes, and new connections lead to every cluster by every endpoint.
func (s *Suite) awaitOtherProxyAPI(ctx context.Context, t *testing.T, k Kind, before []string) {
	t.Helper()
	s.AwaitOtherPods(ctx, t, k, before)
	for _, cluster := range s.Clusters {
		for _, endpoint := range s.Endpoints(cluster) {
			Eventually(t, cluster+" reachable again by "+endpoint.Name, func() error { return Once(ctx, endpoint.Cfg) })
		}
	}
}

// AwaitOtherPods waits until former pods are gone with their processes, and others are ready.
func (s *Suite) AwaitOtherPods(ctx context.Context, t *testing.T, k Kind, before []string) {
	t.Helper()
	Eventually(t, "other pods of the "+k.Name, func() error {
		deployment, err := k.Client.AppsV1().Deployments(k.Namespace).Get(ctx, k.deployment, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := RolledOut(deployment); err != nil {
			return err
		}
		now, err := k.Pods(ctx)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(now, func(name string) bool { return slices.Contains(before, name) }); i >= 0 {
			return fmt.Errorf("pod %q is still there", now[i])
		}
		if s.options.Nodes || s.Lab == nil {
			return nil // such a pod goes when its process has ended
		}
		return s.Lab.PodsEnded(ctx, "hub")
	})
}
