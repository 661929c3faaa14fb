package proxyconfig

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// arrivals are clusters that have come, and some that have not.
type arrivals struct {
	missing []string
	last    time.Time
}

func (a *arrivals) Missing(context.Context, certificates.Check) ([]string, time.Time, error) {
	return a.missing, a.last, nil
}

// proxyServerPod is one of upstream's, or of this release.
func proxyServerPod(name string, labels map[string]string, readyAt time.Time) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if !readyAt.IsZero() {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(readyAt)}}
	}
	return pod
}

// userServerPod is one of upstream's if it has a command, and else a proxy API.
func userServerPod(name string, command ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{addonLabel: "cluster-proxy", "component": "cluster-proxy-addon-user"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "user-server", Command: command}}}}
}

// upstreamsServer is upstream's Deployment of proxy servers.
func upstreamsServer() *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cluster-proxy"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector()}
	d.Spec.Template.Labels = selector()
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy-server", Image: "old", Command: []string{"/proxy-server"}}}
	return d
}

// TestMove has proxy servers of this release take over from upstream's: clients stay
// with upstream's until the clusters have come, and then go over once and for all.
func TestMove(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	const hash = appsv1.DefaultDeploymentUniqueLabelKey
	former := map[string]string{componentLabel: componentName, hash: "old"}
	own := ownSelector()
	loadBalancer := entry(v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: v1alpha1.EntryPointTypeLoadBalancerService})
	c := newClient(t, configuration(loadBalancer), proxyServerPod("old", former, now.Add(-time.Hour)), userServerPod("user-old", "/manager"), userServerPod("user-new"))
	if err := c.Create(t.Context(), upstreamsServer(), client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}
	seen := &arrivals{missing: []string{"cluster1", "cluster2"}}
	r := &Reconciler{Client: c, Live: c, Arrivals: seen, Now: func() time.Time { return now },
		Options: Options{SignerNamespace: ns, SignerName: "cluster-proxy-signer", Namespace: ns, AgentInstallNamespace: "agents", ImagePullPolicy: "IfNotPresent"}}
	step := func(name string, wantClients, wantAgents map[string]string, wantMoving bool) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "cluster-proxy"}})
		if err != nil {
			t.Fatalf("%s: Reconcile = %v, want nil", name, err)
		}
		var clients, agents corev1.Service
		if !exists(t, c, "proxy-entrypoint", &clients) || !exists(t, c, "proxy-agent-entrypoint", &agents) {
			t.Fatalf("%s: a Service is missing", name)
		}
		if diff := cmp.Diff([]map[string]string{wantClients, wantAgents}, []map[string]string{clients.Spec.Selector, agents.Spec.Selector}); diff != "" {
			t.Errorf("%s: selectors of the Services for clients and agents (-want +got):\n%s", name, diff)
		}
		moving, err := Moving(t.Context(), c, withDefaults(stored(t, c)))
		if err != nil || moving != wantMoving {
			t.Errorf("%s: moving is %v, %v; want %v", name, moving, err, wantMoving)
		}
		if wantMoving && result.RequeueAfter > time.Second {
			t.Errorf("%s: the next look is in %s", name, result.RequeueAfter)
		}
	}
	before, err := Moving(t.Context(), c, withDefaults(stored(t, c)))
	if err != nil || !before {
		t.Errorf("before the first step, moving is %v, %v; want true", before, err)
	}
	step("no server of this release yet", former, selector(), true)
	if err := c.Create(t.Context(), proxyServerPod("new", own, now)); err != nil {
		t.Fatal(err)
	}
	step("no cluster has come", former, own, true)
	seen.missing, seen.last = []string{"cluster2"}, now
	step("one has come", former, own, true)
	seen.missing = nil
	wantNext := func(name string, want bool) {
		t.Helper()
		var next corev1.Service
		if got := exists(t, c, "proxy-entrypoint-next", &next); got != want {
			t.Errorf("%s: the Service for proxy APIs is there: %v, want %v", name, got, want)
		}
		if next.CreationTimestamp = metav1.NewTime(now); want { // the fake sets none
			if err := c.Update(t.Context(), &next); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantNext("one has come", false)
	step("all have come", former, own, true)
	wantNext("all have come", true)
	step("upstream's user server is there", former, own, true)
	if err := c.Delete(t.Context(), userServerPod("user-old", "/manager")); err != nil {
		t.Fatal(err)
	}
	step("upstream's user servers are gone", own, own, false)
	wantNext("upstream's user servers are gone", true)
	seen.missing = []string{"cluster1"}
	step("one is away again", own, own, false)
	if err := c.Delete(t.Context(), proxyServerPod("old", former, now)); err != nil {
		t.Fatal(err)
	}
	step("upstream's are gone", selector(), selector(), false)
	wantNext("upstream's are gone", false)
}

// TestMoveContinuesWithoutProxyAPIs does not wait for proxy APIs that never become ready.
func TestMoveContinuesWithoutProxyAPIs(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	former := map[string]string{componentLabel: componentName, appsv1.DefaultDeploymentUniqueLabelKey: "old"}
	for _, tc := range []struct {
		age  time.Duration
		want bool
	}{{moveNext / 2, false}, {moveNext * 2, true}} {
		c := newClient(t, configuration(nil), userServerPod("user-old", "/manager"),
			proxyServerPod("old", former, now.Add(-time.Hour)), proxyServerPod("new", ownSelector(), now.Add(-time.Minute)))
		next := nextService(withDefaults(stored(t, c)))
		next.CreationTimestamp = metav1.NewTime(now.Add(-tc.age))
		if err := c.Create(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		r := &Reconciler{Client: c, Live: c, Now: func() time.Time { return now }}
		if m, err := r.findMove(t.Context(), withDefaults(stored(t, c))); err != nil || !m.arrived || m.moved != tc.want {
			t.Errorf("%s after their Service: %+v, %v; want arrived, and moved %v", tc.age, m, err, tc.want)
		}
	}
}

// TestDrainingServerIsNotReady does not take what a rollback left for a proxy server
// that clients can be led to.
func TestDrainingServerIsNotReady(t *testing.T) {
	draining := proxyServerPod("new", ownSelector(), time.Now())
	draining.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if since := readySince([]corev1.Pod{*draining}); !since.IsZero() {
		t.Errorf("a server that drains is ready since %s, want never", since)
	}
}

// TestMoveContinuesWithoutClusters does not wait for clusters that are away.
func TestMoveContinuesWithoutClusters(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name     string
		ready    time.Duration // ago
		arrivals *arrivals
		want     bool
	}{
		{"nobody has come", moveLimit / 2, &arrivals{missing: []string{"a"}}, false},
		{"nobody has come for too long", 2 * moveLimit, &arrivals{missing: []string{"a"}}, true},
		{"others have just come", moveCalm * 2, &arrivals{missing: []string{"a"}, last: now.Add(-moveCalm / 2)}, false},
		{"others came and then nobody", moveCalm * 2, &arrivals{missing: []string{"a"}, last: now.Add(-moveCalm * 2)}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			former := map[string]string{componentLabel: componentName, appsv1.DefaultDeploymentUniqueLabelKey: "old"}
			c := newClient(t, configuration(nil),
				proxyServerPod("old", former, now.Add(-time.Hour)), proxyServerPod("new", ownSelector(), now.Add(-tc.ready)))
			reconcileOnce(t, c) // makes the CAs
			r := &Reconciler{Client: c, Live: c, Arrivals: tc.arrivals, Now: func() time.Time { return now }, Options: Options{SignerNamespace: ns, SignerName: "cluster-proxy-signer", Namespace: ns}}
			m, err := r.findMove(t.Context(), withDefaults(stored(t, c)))
			// Where no agent has come, agents and proxy APIs come with the clients.
			alone := tc.arrivals.last.IsZero()
			if want := (move{former: "old", ready: true, arrived: tc.want, moved: tc.want && alone}); err != nil || m != want {
				t.Errorf("the move is %+v, %v; want %+v", m, err, want)
			}
		})
	}
}

func TestCanonicalArgs(t *testing.T) {
	for _, tc := range []struct{ in, want []string }{
		{[]string{"--a=1", "--b=2"}, []string{"--a=1", "--b=2"}},
		{[]string{"-v=2"}, []string{"--v=2"}},
		{[]string{"--v", "2", "--x"}, []string{"--v=2", "--x=true"}},
		{[]string{"--enable", "--v=1"}, []string{"--enable=true", "--v=1"}},
		{[]string{"--keep_alive=a_b", "--max_idle", "x_y"}, []string{"--keep-alive=a_b", "--max-idle=x_y"}},
		{[]string{"word"}, []string{"word"}},
		{nil, nil},
	} {
		if diff := cmp.Diff(tc.want, canonicalArgs(tc.in)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tc.in, diff)
		}
	}
}

// TestReservedFlagsBySpelling spells flags as the processes take them too.
func TestReservedFlagsBySpelling(t *testing.T) {
	for _, arg := range []string{"--konnectivity-agents=true", "--konnectivity_agents", "-konnectivity_agents=true"} {
		_, err := Normalize(configuration(func(c *v1alpha1.ManagedProxyConfiguration) { c.Spec.ProxyServer.AdditionalArgs = []string{arg} }))
		if err == nil {
			t.Errorf("%s overrides what follows from the configuration", arg)
		}
	}
	_, err := Normalize(configuration(func(c *v1alpha1.ManagedProxyConfiguration) {
		c.Spec.ProxyAgent.AdditionalServiceProxyArgs = []string{"--max_idle_conns=5"}
	}))
	if err != nil {
		t.Errorf("a flag of upstream's that is ignored stops the configuration: %v", err)
	}
}

// TestIgnoredArgs takes what upstream's users give its proxy server and its service proxy.
func TestIgnoredArgs(t *testing.T) {
	c := newClient(t, configuration(func(c *v1alpha1.ManagedProxyConfiguration) {
		c.Spec.ProxyServer.AdditionalArgs = []string{"--xfr-channel-size=150", "--v=2"}
		c.Spec.ProxyAgent.AdditionalServiceProxyArgs = []string{"--kube-api-qps=100", "--token-review-cache-ttl", "5s", "--oidc-groups-claim=groups"}
	}))
	reconcileOnce(t, c)
	conditions := stored(t, c).Status.Conditions
	if !apimeta.IsStatusConditionTrue(conditions, v1alpha1.ConditionTypeConfigurationValid) {
		t.Errorf("the configuration is not valid: %v", apimeta.FindStatusCondition(conditions, v1alpha1.ConditionTypeConfigurationValid))
	}
	ignored := apimeta.FindStatusCondition(conditions, v1alpha1.ConditionTypeConfigurationIgnored)
	if ignored == nil || ignored.Status != metav1.ConditionTrue {
		t.Fatalf("the condition of what is ignored is %v", ignored)
	}
	if want := "spec.proxyServer.additionalArgs: --xfr-channel-size; spec.proxyAgent.additionalServiceProxyArgs: --kube-api-qps, --token-review-cache-ttl"; !strings.Contains(ignored.Message, want) {
		t.Errorf("the condition says %q, want %q in it", ignored.Message, want)
	}
	normal, err := Normalize(stored(t, c))
	if err != nil || !slices.Equal(normal.Spec.ProxyAgent.AdditionalServiceProxyArgs, []string{"--oidc-groups-claim=groups"}) {
		t.Errorf("the agent gets %q, %v, want --oidc-groups-claim=groups alone", normal.Spec.ProxyAgent.AdditionalServiceProxyArgs, err)
	}
	if got := normal.Spec.ProxyServer.AdditionalArgs; !slices.Equal(got, []string{"--v=2"}) {
		t.Errorf("the proxy server gets %q, want --v=2 alone", got)
	}
}
