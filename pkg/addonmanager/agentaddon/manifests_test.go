package agentaddon

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"open-cluster-management.io/addon-framework/pkg/agent"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// rendering is an addon whose renderings are counted.
type rendering struct {
	agent.AgentAddon
	hub      client.Client
	rendered atomic.Int32
	// meanwhile is called when a rendering begins; it may be nil.
	meanwhile func()
}

// counted counts renderings.
type counted struct {
	agent.AgentAddon
	r *rendering
}

func (c counted) Manifests(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn) ([]runtime.Object, error) {
	c.r.rendered.Add(1)
	if c.r.meanwhile != nil {
		c.r.meanwhile()
	}
	return c.AgentAddon.Manifests(cluster, addon)
}

func newRendering(t testing.TB) *rendering {
	t.Helper()
	r := &rendering{hub: hubWith(t, configuration(nil))}
	addon := &Addon{Hub: r.hub, Reader: r.hub, Certificates: certificates.Store{Client: r.hub, Namespace: hubNamespace, BundleNamespace: hubNamespace},
		DeploymentConfigs: oneConfig{}, InstallNamespace: identity.DefaultAgentNamespace, EnableKubeAPIProxy: true}
	built, err := addon.Build()
	if err != nil {
		t.Fatal(err)
	}
	inner := built.(*once)
	inner.AgentAddon = counted{inner.AgentAddon, r}
	r.AgentAddon = inner
	return r
}

// configure sets an argument of all agents.
func (r *rendering) configure(t testing.TB, argument string) {
	t.Helper()
	var configuration v1alpha1.ManagedProxyConfiguration
	if err := r.hub.Get(t.Context(), client.ObjectKey{Name: identity.AddonName}, &configuration); err != nil {
		t.Fatal(err)
	}
	configuration.Spec.ProxyAgent.AdditionalArgs = []string{argument}
	if err := r.hub.Update(t.Context(), &configuration); err != nil {
		t.Fatal(err)
	}
}

func (r *rendering) manifests(t testing.TB, cluster string) []runtime.Object {
	t.Helper()
	addon := &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: cluster}}
	objects, err := r.Manifests(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster, UID: types.UID("uid-of-" + cluster)}}, addon)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// TestManifestsAreMadeOnce asks as addon-framework does, twice for each of many clusters.
func TestManifestsAreMadeOnce(t *testing.T) {
	r := newRendering(t)
	const clusters = 10
	for i := range clusters {
		name := fmt.Sprint("cluster", i)
		first, second := r.manifests(t, name), r.manifests(t, name)
		if !equality.Semantic.DeepEqual(first, second) {
			t.Errorf("the manifests of %s differ the second time", name)
		}
		first[0].(client.Object).SetName("changed by the caller")
		if third := r.manifests(t, name); !equality.Semantic.DeepEqual(third, second) {
			t.Errorf("a caller changed the manifests of %s", name)
		}
	}
	if got := r.rendered.Load(); got != clusters {
		t.Errorf("rendered %d times, want %d", got, clusters)
	}
	// An input of the manifests changes.
	r.configure(t, "--keepalive-time=21s")
	if args := argsOf(t, r.manifests(t, fmt.Sprint("cluster", clusters-1))); !slices.Contains(args, "--keepalive-time=21s") {
		t.Errorf("arguments after a change are %q", args)
	}
}

// TestAgentWaitsForItsList wants a pod that starts before the list of exposed Services is there to wait for it: it would refuse
// requests to Services until its kubelet brings it the list, which takes a minute.
func TestAgentWaitsForItsList(t *testing.T) {
	for _, object := range newRendering(t).manifests(t, "c1") {
		deployment, ok := object.(*appsv1.Deployment)
		if !ok {
			continue
		}
		for _, volume := range deployment.Spec.Template.Spec.Volumes {
			if volume.Name == "exposed-services" && volume.ConfigMap != nil && volume.ConfigMap.Optional == nil {
				return
			}
		}
	}
	t.Error("no pod waits for its list")
}

// TestManifestsOfSeveralClustersAreMadeOnce asks as the controllers of addon-framework do, which
// look at several clusters at a time.
func TestManifestsOfSeveralClustersAreMadeOnce(t *testing.T) {
	r := newRendering(t)
	const clusters = 20
	for range 2 {
		for i := range clusters {
			name := fmt.Sprint("cluster", i)
			if args := argsOf(t, r.manifests(t, name)); !slices.Contains(args, "--cluster-name="+name) {
				t.Errorf("the agent of %s has the arguments %q", name, args)
			}
		}
	}
	if got := r.rendered.Load(); got != clusters {
		t.Errorf("rendered %d times for %d clusters", got, clusters)
	}
	for i := range answersKept {
		r.manifests(t, fmt.Sprint("more", i))
	}
	if kept := r.AgentAddon.(*once); len(kept.answers) != answersKept || len(kept.order) != answersKept {
		t.Errorf("%d and %d answers are kept, want %d", len(kept.answers), len(kept.order), answersKept)
	}
}

// TestManifestsAreOfWhatWasRead changes a configuration, and changes it back, while manifests are
// rendered. They must not be remembered as those of the configuration that they are not made of.
func TestManifestsAreOfWhatWasRead(t *testing.T) {
	r := newRendering(t)
	first, second := "--keepalive-time=21s", "--keepalive-time=22s"
	r.configure(t, first)
	r.meanwhile = func() { r.configure(t, second) }
	r.manifests(t, "cluster1")
	r.configure(t, first)
	r.meanwhile = nil
	if args := argsOf(t, r.manifests(t, "cluster1")); !slices.Contains(args, first) {
		t.Errorf("the agent has the arguments %q, want %s", args, first)
	}
}

// TestIgnoredVariablesAreTold changes variables that change no manifest.
func TestIgnoredVariablesAreTold(t *testing.T) {
	r := newRendering(t)
	spec := &addonv1alpha1.AddOnDeploymentConfigSpec{}
	addon := r.AgentAddon.(*once).addon
	addon.DeploymentConfigs = oneConfig{spec}
	var told []string
	addon.Ignored = func(_ context.Context, _ *addonv1alpha1.ManagedClusterAddOn, variables []string) { told = variables }
	config := addonv1alpha1.AddOnConfig{
		ConfigGroupResource: addonv1alpha1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addondeploymentconfigs"},
		ConfigReferent:      addonv1alpha1.ConfigReferent{Name: "config", Namespace: "cluster1"},
	}
	mca := &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: "cluster1"}}
	mca.Spec.Configs = []addonv1alpha1.AddOnConfig{config}
	mca.Status.ConfigReferences = []addonv1alpha1.ConfigReference{{
		ConfigGroupResource: config.ConfigGroupResource, DesiredConfig: &addonv1alpha1.ConfigSpecHash{ConfigReferent: config.ConfigReferent, SpecHash: "x"},
	}}
	for _, want := range [][]string{nil, {"serviceDomain"}, nil} {
		spec.CustomizedVariables = nil
		for _, name := range want {
			spec.CustomizedVariables = append(spec.CustomizedVariables, addonv1alpha1.CustomizedVariable{Name: name, Value: "cluster.local"})
		}
		if _, err := r.Manifests(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "uid"}}, mca); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(told, want) {
			t.Errorf("told that %q are ignored, want %q", told, want)
		}
	}
}

// TestHubIsRecognizedWhenItsManifestsAreApplied makes the ClusterRole right after it was asked for.
// The addon's condition says nothing of it: in an upgrade from OCM's own cluster-proxy it is True
// before and after.
func TestHubIsRecognizedWhenItsManifestsAreApplied(t *testing.T) {
	r := newRendering(t)
	if args := argsOf(t, r.manifests(t, "local")); slices.Contains(args, "--on-hub=true") {
		t.Fatalf("arguments before anything is applied are %q", args)
	}
	r.manifests(t, "cluster1")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: impersonatorPrefix + identity.DefaultAgentNamespace, Annotations: map[string]string{clusterAnnotation: "uid-of-local"}}}
	if err := r.hub.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if args := argsOf(t, r.manifests(t, "local")); !slices.Contains(args, "--on-hub=true") {
		t.Errorf("arguments after they are applied are %q, want --on-hub=true", args)
	}
	// The cluster is imported again.
	role.Annotations[clusterAnnotation] = "uid-of-other"
	if err := r.hub.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if args := argsOf(t, r.manifests(t, "other")); !slices.Contains(args, "--on-hub=true") {
		t.Errorf("arguments after it was imported again are %q, want --on-hub=true", args)
	}
}

func argsOf(t *testing.T, objects []runtime.Object) []string {
	t.Helper()
	for _, object := range objects {
		if deployment, ok := object.(*appsv1.Deployment); ok {
			return deployment.Spec.Template.Spec.Containers[0].Args
		}
	}
	t.Fatal("no Deployment was rendered")
	return nil
}
