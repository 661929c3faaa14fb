package addonmanager

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"open-cluster-management.io/addon-framework/pkg/agent"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonfake "open-cluster-management.io/api/client/addon/clientset/versioned/fake"
	clusterfake "open-cluster-management.io/api/client/cluster/clientset/versioned/fake"
	workfake "open-cluster-management.io/api/client/work/clientset/versioned/fake"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// meeting is an agent whose manifests are there when those of some clusters are asked for at
// the same time.
type meeting struct {
	missing sync.WaitGroup
	mu      sync.Mutex
	came    map[string]bool
}

func (m *meeting) Manifests(cluster *clusterv1.ManagedCluster, _ *addonv1alpha1.ManagedClusterAddOn) ([]runtime.Object, error) {
	m.mu.Lock()
	if !m.came[cluster.Name] {
		m.came[cluster.Name] = true
		m.missing.Done()
	}
	m.mu.Unlock()
	m.missing.Wait()
	return []runtime.Object{&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: cluster.Name}}}, nil
}

func (m *meeting) GetAgentAddonOptions() agent.AgentAddonOptions {
	return agent.AgentAddonOptions{AddonName: identity.AddonName}
}

// startFramework runs addon-framework's controllers on fakes until the test ends.
func startFramework(t *testing.T, hub hubClients, addon agent.AgentAddon) {
	t.Helper()
	// The fakes of OCM's clients cannot stream lists.
	featurestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, false)
	f, err := newFramework(hub, addon)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// TestClustersDoNotWaitForEachOther has a hub that answers for one cluster when it is asked for
// others too.
func TestClustersDoNotWaitForEachOther(t *testing.T) {
	addon := &meeting{came: map[string]bool{}}
	addon.missing.Add(clusterWorkers)
	var clusters, addons []runtime.Object
	for i := range clusterWorkers {
		name := fmt.Sprint("cluster", i)
		clusters = append(clusters, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
		addons = append(addons, &addonv1alpha1.ManagedClusterAddOn{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: identity.AddonName, OwnerReferences: []metav1.OwnerReference{{Kind: "ClusterManagementAddOn", Name: identity.AddonName}}},
		})
	}
	addons = append(addons, &addonv1alpha1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName}})
	works := workfake.NewSimpleClientset()
	startFramework(t, hubClients{
		kube: kubefake.NewClientset(), dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()),
		addons: addonfake.NewSimpleClientset(addons...), clusters: clusterfake.NewSimpleClientset(clusters...), works: works,
	}, addon)
	wait.Poll{Every: 10 * time.Millisecond, For: time.Minute}.Success(t, "every cluster's work", func() error {
		list, err := works.WorkV1().ManifestWorks(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) != clusterWorkers {
			err = fmt.Errorf("%d of %d clusters have their work", len(list.Items), clusterWorkers)
		}
		return err
	})
}
