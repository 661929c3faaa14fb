package e2e

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// ledger counts what is written for certificates: requests by signer, and
// Secrets of the hub by how they changed.
type ledger struct {
	mu     sync.Mutex
	counts map[string]int
}

// keepLedger counts until the test ends.
func keepLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{counts: map[string]int{}}
	requests, secrets := installed.Hub.CertificatesV1().CertificateSigningRequests(), installed.Hub.CoreV1().Secrets(installed.Namespace)
	ours := metav1.ListOptions{LabelSelector: "open-cluster-management.io/addon-name=" + identity.AddonName}
	list, err := requests.List(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	ours.ResourceVersion = list.ResourceVersion
	asked, err := requests.Watch(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	held, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	written, err := secrets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: held.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []watch.Interface{asked, written} {
		go func() {
			for event := range w.ResultChan() {
				l.add(event)
			}
		}()
		t.Cleanup(w.Stop)
	}
	return l
}

// add counts an event. Requests change when they are answered, which does not
// count.
func (l *ledger) add(event watch.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if secret, ok := event.Object.(*corev1.Secret); ok {
		if secret.Type == corev1.SecretTypeTLS || strings.HasSuffix(secret.Name, "-ca") {
			l.counts[fmt.Sprintf("%s %s", event.Type, secret.Name)]++
		}
	} else if event.Type == watch.Added {
		l.counts["request"]++
	}
}

// take returns what was counted since it was called last.
func (l *ledger) take() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.counts
	l.counts = map[string]int{}
	return counts
}

// wantCounted waits until something was counted: a watch may say it after a GET does.
func (l *ledger) wantCounted(t *testing.T, what string) {
	t.Helper()
	suite.Eventually(t, what+" to be counted", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.counts[what] == 0 {
			return fmt.Errorf("there are %v", l.counts)
		}
		return nil
	})
}

// TestAddonManagersComeAndGo takes certificates away while there is one addon
// manager, while there are two, and while there is none. Each time they are asked
// for and issued as often as one manager does it, and nothing else is written. A
// request too many after one round is counted in the next. It disturbs the hub:
// the addon manager is scaled, and certificates are deleted.
func TestAddonManagersComeAndGo(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	needNodes(t)
	cluster := installed.Clusters[0]
	managed := suite.Clientset(t, installed.Direct(cluster))
	managers := installed.Hub.AppsV1().Deployments(installed.Namespace)
	deployment, err := managers.Get(t.Context(), identity.AddonManager, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale := func(replicas int32) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		if _, err := managers.Patch(context.Background(), identity.AddonManager, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		suite.Eventually(t, fmt.Sprint(replicas, " addon managers"), func() error {
			d, err := managers.Get(context.Background(), identity.AddonManager, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := suite.RolledOut(d); err != nil {
				return err
			}
			return podCount(context.Background(), d.Spec.Selector, int(replicas))
		})
	}
	t.Cleanup(func() { scale(*deployment.Spec.Replicas) })
	counted := keepLedger(t)
	var one map[string]int
	for _, round := range []struct {
		name            string
		managers, after int32
	}{{"one", 1, 1}, {"two", 2, 2}, {"none for a while", 0, 2}, {"one again", 1, 1}} {
		scale(round.managers)
		old := takeCertificates(t, managed)
		if round.managers == 0 {
			counted.wantCounted(t, "request") // which nobody answers
			scale(round.after)
		}
		old.wantNew(t, managed)
		counted.wantCounted(t, "request")
		counted.wantCounted(t, "ADDED proxy-client")
		got := counted.take()
		t.Logf("%s: %v", round.name, got)
		if one == nil {
			one = got
		} else if diff := cmp.Diff(one, got); diff != "" {
			t.Errorf("with %s the counts differ from those with one (-one +now):\n%s", round.name, diff)
		}
	}
	if want := map[string]int{"request": 1, "DELETED proxy-client": 1, "ADDED proxy-client": 1}; !cmp.Equal(one, want) {
		t.Errorf("one addon manager has %v, want %v", one, want)
	}
}

func podCount(ctx context.Context, selector *metav1.LabelSelector, want int) error {
	pods, err := installed.Hub.CoreV1().Pods(installed.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector)})
	if err == nil && len(pods.Items) != want {
		err = fmt.Errorf("there are %d pods", len(pods.Items))
	}
	return err
}

// takenCertificates are those that were deleted.
type takenCertificates struct{ agent, client []byte }

// takeCertificates deletes the agents' certificate on a managed cluster, and that
// of clients on the hub.
func takeCertificates(t *testing.T, managed kubernetes.Interface) (taken takenCertificates) {
	t.Helper()
	agents := managed.CoreV1().Secrets(installed.AgentNamespace)
	secret, err := agents.Get(t.Context(), identity.AgentCertificateSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	taken.agent, taken.client = secret.Data[corev1.TLSCertKey], installed.MustHubSecret(t, "proxy-client").Data[corev1.TLSCertKey]
	if err := agents.Delete(t.Context(), identity.AgentCertificateSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := installed.Hub.CoreV1().Secrets(installed.Namespace).Delete(t.Context(), "proxy-client", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return taken
}

// wantNew waits for other certificates in their place.
func (taken takenCertificates) wantNew(t *testing.T, managed kubernetes.Interface) {
	t.Helper()
	suite.Eventually(t, "new certificates", func() error {
		agent, err := managed.CoreV1().Secrets(installed.AgentNamespace).Get(t.Context(), identity.AgentCertificateSecret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		client, err := installed.HubSecret(t.Context(), "proxy-client")
		if err != nil {
			return err
		}
		for name, both := range map[string][2][]byte{"the agents'": {taken.agent, agent.Data[corev1.TLSCertKey]}, "the clients'": {taken.client, client.Data[corev1.TLSCertKey]}} {
			if len(both[1]) == 0 || bytes.Equal(both[0], both[1]) {
				return fmt.Errorf("%s is not there", name)
			}
		}
		return nil
	})
}
