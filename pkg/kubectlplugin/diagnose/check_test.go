package diagnose

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// brokenHub has one replica of each part, an APIService that the control plane cannot use,
// a cluster c2 that is dead, and a cluster c3 of which only the tunnel is.
func brokenHub(t *testing.T) (kubeconfig string) {
	t.Helper()
	since := metav1.NewTime(time.Date(2026, 11, 27, 2, 47, 0, 0, time.UTC))
	return clitest.FakeHubWith(t, func(serve func(string, int, any)) {
		configuration := v1alpha1.ManagedProxyConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster-proxy"}}
		configuration.Spec.ProxyServer.Namespace = "addon"
		end := time.Now().Add(48 * time.Hour).UTC().Format(time.RFC3339)
		configuration.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.ConditionTypeConfigurationValid, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionTypeProxyServerSecretSigned, Status: metav1.ConditionTrue, Message: "Expiry:" + end},
		}
		serve(cli.ConfigurationsPath, 200, v1alpha1.ManagedProxyConfigurationList{Items: []v1alpha1.ManagedProxyConfiguration{configuration}})
		deployments := ofRelease("v2")
		for i := range deployments {
			deployments[i].Spec.Replicas = new(int32)
			*deployments[i].Spec.Replicas = 1
			deployments[i].Status.ReadyReplicas = 1
		}
		serve("/apis/apps/v1/namespaces/addon/deployments", 200, appsv1.DeploymentList{Items: deployments})
		serve(cli.ManagedClustersPath+"/c2", 200, clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}, Status: clusterv1.ManagedClusterStatus{
			Conditions: []metav1.Condition{{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionUnknown, LastTransitionTime: since, Message: "Registration agent stopped updating its lease."}}}})
		serve(cli.ManagedClustersPath+"/c3", 200, clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}, Status: clusterv1.ManagedClusterStatus{
			Conditions: []metav1.Condition{{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue}}}})
		serve(cli.ManagedClustersPath+"/c4", 200, clusterv1.ManagedCluster{})
		for _, name := range []string{"c2", "c3", "c4"} {
			serve(cli.AddonAPI+"/namespaces/"+name+"/managedclusteraddons/cluster-proxy", 200, addonv1alpha1.ManagedClusterAddOn{})
			serve("/apis/work.open-cluster-management.io/v1/namespaces/"+name+"/manifestworks", 200, workv1.ManifestWorkList{Items: []workv1.ManifestWork{{
				Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue}}}}}})
		}
		serve(cli.GroupPath+"/c3/proxy/version", 503, clitest.StatusOf(503, metav1.StatusReasonServiceUnavailable, "", `no agent of cluster "c3" is connected since 2026-11-27T02:47:00Z; see: kubectl clusterproxy check c3`))
		serve(cli.GroupPath+"/c4/proxy/version", 502, clitest.StatusOf(502, "", "", "the agent cannot reach the managed cluster's kube-apiserver"))
	})
}

// TestCheckTellsWhatIsDead has a dead cluster, a dead tunnel, one replica and certificates
// that end, and wants the line for each, and a last one.
func TestCheckTellsWhatIsDead(t *testing.T) {
	kubeconfig := brokenHub(t)
	out, _, err := run(t, kubeconfig, "check")
	if !errors.Is(err, cli.ErrNotGood) {
		t.Errorf("error %v, want errNotGood", err)
	}
	rest := out
	for _, want := range []string{
		"hub\n√ hub-api", "√ hub-apiservice", "√ hub-configuration", "× hub-certificates", "the first ends at", "ProxyServerSecretSigned", "‼ hub-replicas", "proxy server 1/1", "replicas=2",
		"√ hub-clusters", "clusters: 1 of 2 good",
		"× c2: the cluster itself is away", "× cluster-registered", "since 2026-11-27T02:47:00Z", "√ cluster-installed", "× cluster-api",
		"The hub is not good: hub-certificates; 1 of 2 clusters not good: c2 (--all shows the good ones).",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("there is no %q, in this place:\n%s", want, out)
		}
		rest = after
	}
}

// TestFleetIndexIsOptional has hubs with an index that is ready, one that is not, and none.
func TestFleetIndexIsOptional(t *testing.T) {
	all := ofRelease("v2")
	for i := range all {
		all[i].Spec.Replicas, all[i].Status.ReadyReplicas = new(int32), 2
		*all[i].Spec.Replicas = 2
	}
	index := &all[slices.IndexFunc(all, func(d appsv1.Deployment) bool { return d.Labels["component"] == "cluster-proxy-fleet-index" })]
	*index.Spec.Replicas, index.Status.ReadyReplicas = 1, 1
	if f := checkReplicas(all); !f.OK || !strings.Contains(f.Text, "fleet index 1/1") {
		t.Errorf("an index that is ready: %+v", f)
	}
	index.Status.ReadyReplicas = 0
	if f := checkReplicas(all); f.OK || f.isBad() || !strings.Contains(f.Text, "fleet index 0/1") {
		t.Errorf("an index that is not ready: %+v", f)
	}
	without := slices.DeleteFunc(all, func(d appsv1.Deployment) bool { return d.Labels["component"] == "cluster-proxy-fleet-index" })
	if f := checkReplicas(without); !f.OK || strings.Contains(f.Text, "index") {
		t.Errorf("no index: %+v", f)
	}
}

// TestCheckSaysWhatIsLost wants the groups and extras of an administrator that a cluster is not
// told of.
func TestCheckSaysWhatIsLost(t *testing.T) {
	paths := clitest.PathsOf(clusterproxy.ClusterList{Items: []clusterproxy.Cluster{clitest.ClusterOf("c1", metav1.ConditionTrue, "")}})
	paths[cli.IdentityPath("c1")] = clitest.Always(200, clusterproxy.ClusterIdentity{
		Hub:     clusterproxy.UserInfo{Username: "kubernetes-admin", Groups: []string{"kubeadm:cluster-admins"}, Extra: map[string][]string{"arn": {"a"}}},
		Cluster: clusterproxy.UserInfo{Username: "kubernetes-admin"}})
	out, _, _ := run(t, clitest.HubOfPaths(t, paths), "check", "c1")
	for _, want := range []string{`√ cluster-identity`, `you are "kubernetes-admin" there`, "not told of groups kubeadm:cluster-admins", "not told of extras arn"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
}

// TestCheckOfAnUnreachableProxyAPI has a control plane that cannot connect to the port of the proxy
// API: it answers for the whole group with 503, and its APIService says why.
func TestCheckOfAnUnreachableProxyAPI(t *testing.T) {
	paths := clitest.PathsOf(clusterproxy.ClusterList{})
	unavailable := clitest.Always(503, clitest.StatusOf(503, metav1.StatusReasonServiceUnavailable, "", "the server is currently unable to handle the request"))
	paths[cli.GroupPath], paths["/apis/"+clusterproxy.GroupVersion.String()] = unavailable, unavailable
	paths[cli.APIServicePath] = clitest.Always(200, `{"status": {"conditions": [{"type": "Available", "status": "False", "reason": "FailedDiscoveryCheck", "message": "dial tcp 10.96.3.4:443: i/o timeout"}]}}`)
	out, _, err := run(t, clitest.HubOfPaths(t, paths), "check")
	for _, want := range []string{"× hub-apiservice", "dial tcp 10.96.3.4:443: i/o timeout", "firewalls", "The hub is not good: hub-apiservice; no cluster was asked: see hub-clusters."} {
		if !errors.Is(err, cli.ErrNotGood) || !strings.Contains(out, want) {
			t.Errorf("check says, %v, want %q:\n%s", err, want, out)
		}
	}
}

// TestSummaries does not call a hub good of which nothing is known, nor bad for a cluster that it
// does not have.
func TestSummaries(t *testing.T) {
	good, hidden := finding{ID: "hub-api", OK: true}, finding{ID: "hub-certificates", Skipped: true}
	for want, c := range map[string]checked{
		"The hub is good; so is each of 1 cluster.":                                    {hub: []finding{good}, names: []string{"c1"}},
		"The hub is good, as far as you may read it (1 not); so is each of 1 cluster.": {hub: []finding{good, hidden}, names: []string{"c1"}},
		"The hub is good; no cluster was asked: see hub-clusters.":                     {hub: []finding{good, {ID: hubClusters}}},
		"The hub is not good: hub-api; no cluster was asked: see hub-clusters.":        {hub: []finding{{ID: "hub-api"}, {ID: hubClusters}}},
	} {
		if got := c.summary(nil, true); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestCheckOfFrozenProxyServers has proxy servers that are Running and do not answer: the proxy API
// says so of each cluster, or, at first, that none answers in time.
func TestCheckOfFrozenProxyServers(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"no proxy server": {&tunnel.Error{Code: tunnel.NoProxyServer}, []string{"× hub-tunnels", "reaches no proxy server: 2 clusters cannot be asked", "may be Running and not answer",
			"× c1: the hub's proxy servers do not answer", "The hub is not good: hub-tunnels; 2 of 2 clusters not good"}},
		"late": {&tunnel.Error{Code: tunnel.TimedOut}, []string{"‼ hub-tunnels", "no cluster answers: either each is away, or the proxy servers stand still", "The hub seems good, but no cluster answers"}},
	} {
		t.Run(name, func(t *testing.T) {
			paths := clitest.PathsOf(clusterproxy.ClusterList{Items: []clusterproxy.Cluster{clitest.ClusterOf("c1", metav1.ConditionTrue, ""), clitest.ClusterOf("c2", metav1.ConditionTrue, "")}})
			for _, cluster := range []string{"c1", "c2"} {
				code, message := agentclient.StatusOf(test.err, cluster, time.Time{})
				paths[cli.GroupPath+"/"+cluster+"/proxy/version"] = clitest.Always(code, clitest.StatusOf(int32(code), "", "", message))
			}
			out, _, err := run(t, clitest.HubOfPaths(t, paths), "check")
			for _, want := range test.want {
				if !errors.Is(err, cli.ErrNotGood) || !strings.Contains(out, want) {
					t.Errorf("check says, %v, want %q:\n%s", err, want, out)
				}
			}
		})
	}
}

// TestCheckOfManifestsThatFail has an addon whose manifests the hub could not make, of a cluster with
// a tunnel and of one without.
func TestCheckOfManifestsThatFail(t *testing.T) {
	addon := addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: "cluster-proxy", Namespace: "c1"}, Status: addonv1alpha1.ManagedClusterAddOnStatus{
		Conditions: []metav1.Condition{{Type: addonv1alpha1.ManagedClusterAddOnManifestApplied, Status: metav1.ConditionFalse, Message: "no such variable"}}}}
	found := checkManifests([]addonv1alpha1.ManagedClusterAddOn{{ObjectMeta: metav1.ObjectMeta{Namespace: "c0"}}, addon})
	if want := "the agent's manifests are not applied on 1 cluster (c1): no such variable"; len(found) != 1 || found[0].OK || found[0].isBad() || found[0].Text != want {
		t.Errorf("%+v, want a warning: %s", found, want)
	}
	kubeconfig := clitest.FakeHubWith(t, func(serve func(string, int, any)) {
		serve(cli.AddonAPI+"/namespaces/c1/managedclusteraddons/cluster-proxy", 200, addon)
		serve("/apis/work.open-cluster-management.io/v1/namespaces/c1/manifestworks", 200, workv1.ManifestWorkList{})
	})
	hub, err := clientOf(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if f := checkInstalled(t.Context(), hub, "c1"); !f.isBad() || !strings.Contains(f.Text, "no such variable") {
		t.Errorf("%+v, want the condition's message", f)
	}
}

// TestCheckOfManyRequests has an addon that was removed and installed until OCM makes no more
// requests for certificates, and one that has got a certificate by the last of them.
func TestCheckOfManyRequests(t *testing.T) {
	const many, last = "OCM's agent makes none while there are 10", "its last request for a certificate approved"
	made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		requests int
		newest   time.Duration // after the addon was made
		want     string
	}{
		"fewer":                        {requestLimit - 1, -time.Minute, last},
		"none since":                   {requestLimit, -time.Minute, many},
		"one since":                    {requestLimit, time.Minute, last},
		"one since, more than allowed": {requestLimit + 5, time.Minute, last},
	} {
		requests := certificatesv1.CertificateSigningRequestList{Items: slices.Repeat([]certificatesv1.CertificateSigningRequest{{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made.Add(test.newest))},
			Status:     certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}}}}, test.requests)}
		hub, err := clientOf(clitest.FakeHubWith(t, func(serve func(string, int, any)) {
			serve("/apis/certificates.k8s.io/v1/certificatesigningrequests", 200, requests)
		}))
		if err != nil {
			t.Fatal(err)
		}
		f := checkRequests(t.Context(), hub, finding{ID: "cluster-installed", Cluster: "c1"}, metav1.NewTime(made))
		if f.isBad() != (test.want == many) || !strings.Contains(f.Text, test.want) || f.isBad() && !strings.Contains(f.Remedy, "cluster-name=c1") {
			t.Errorf("%s: %+v, want %q", name, f, test.want)
		}
	}
}

// TestVerdicts tells a dead cluster from a dead tunnel.
func TestVerdicts(t *testing.T) {
	hubs := brokenHub(t)
	for name, test := range map[string]struct {
		cluster string
		want    string
	}{
		"the cluster is dead":        {"c2", "the cluster itself is away: the hub hears nothing of it"},
		"the tunnel is dead":         {"c3", "the cluster is alive, its tunnel is not"},
		"the kube-apiserver is dead": {"c4", "its tunnel is alive, the kube-apiserver behind it is not"},
	} {
		hub, err := clientOf(hubs)
		if err != nil {
			t.Fatal(err)
		}
		findings := checkCluster(t.Context(), hub, clitest.ClusterOf(test.cluster, metav1.ConditionUnknown, "LeaseStopped"))
		for _, f := range findings {
			if strings.Contains(f.Text, "clusterproxy check") {
				t.Errorf("%s: check says %q", name, f.Text)
			}
		}
		if got, isBad := verdictOf(findings); got != test.want || !isBad {
			t.Errorf("%s: %q of %+v, want %q", name, got, findings, test.want)
		}
	}
}

// TestCheckOfAPIServices wants what the control plane says, whoever else the proxy API answers.
func TestCheckOfAPIServices(t *testing.T) {
	for name, test := range map[string]struct {
		code    int
		answer  any
		bad     bool
		skipped bool
		says    string
	}{
		"reached":     {200, `{"status": {"conditions": [{"type": "Available", "status": "True"}]}}`, false, false, "reaches the proxy API"},
		"unreachable": {200, `{"status": {"conditions": [{"type": "Available", "status": "False", "reason": "FailedDiscoveryCheck", "message": "dial tcp 10.0.0.7:9092: i/o timeout"}]}}`, true, false, "FailedDiscoveryCheck: dial tcp 10.0.0.7:9092: i/o timeout"},
		"not there":   {404, clitest.StatusOf(404, metav1.StatusReasonNotFound, "", "not found"), true, false, "there is no APIService"},
		"not for ann": {403, clitest.StatusOf(403, metav1.StatusReasonForbidden, "", "not for ann"), false, true, "cannot be read: not for ann"},
		"slow":        {504, clitest.StatusOf(504, metav1.StatusReasonTimeout, "", "late"), false, false, "cannot be read: late"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, err := clientOf(apiServiceHub(t, test.code, test.answer))
			if err != nil {
				t.Fatal(err)
			}
			if f := checkAPIService(t.Context(), hub); f.isBad() != test.bad || f.Skipped != test.skipped || !strings.Contains(f.Text, test.says) {
				t.Errorf("%+v, want bad: %v, skipped: %v, and %q", f, test.bad, test.skipped, test.says)
			}
		})
	}
}

// TestCheckAsksAtOnce has clusters that answer when all of them are asked.
func TestCheckAsksAtOnce(t *testing.T) {
	hub := newMeetingHub(t, cli.AskedAtOnce)
	out, _, err := run(t, hub, "check")
	if err != nil || !strings.Contains(out, fmt.Sprintf("clusters: %d of %d good", cli.AskedAtOnce, cli.AskedAtOnce)) {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestCheckWaits has a cluster that is away when it is asked first.
func TestCheckWaits(t *testing.T) {
	hub, before := newLateHub(t), checkAgain
	checkAgain = time.Millisecond
	t.Cleanup(func() { checkAgain = before })
	if _, _, err := run(t, hub, "check", "c1"); !errors.Is(err, cli.ErrNotGood) {
		t.Fatalf("error %v, want errNotGood", err)
	}
	if out, _, err := run(t, hub, "check", "c1", "--wait=1m"); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestVersionWithoutAHub wants the plugin's own, and words that name what is missing.
func TestVersionWithoutAHub(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none")
	t.Setenv("KUBECONFIG", file)
	t.Setenv("HOME", t.TempDir())
	release = "v9"
	t.Cleanup(func() { release = "" })
	out, errOut, err := run(t, "", "version")
	if want := "there is no kubeconfig of the hub in " + file + ": set KUBECONFIG, or use --kubeconfig"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	clitest.WantLines(t, out, []string{"plugin v9 here"})
	clitest.WantLines(t, errOut, nil)
}

func run(t *testing.T, kubeconfig string, args ...string) (out, errOut string, err error) {
	t.Helper()
	return clitest.Run(t, kubeconfig, args, StatusCommand, CheckCommand, TestCommand, VersionCommand, BundleCommand)
}
