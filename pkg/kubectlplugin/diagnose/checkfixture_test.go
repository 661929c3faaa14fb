package diagnose

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// clientOf is a client with a kubeconfig, as the plugin's.
func clientOf(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// apiServiceHub answers for its APIService alone.
func apiServiceHub(t *testing.T, code int, answer any) (kubeconfig string) {
	t.Helper()
	return clitest.HubOfPaths(t, map[string]func() (int, any){cli.APIServicePath: clitest.Always(code, answer)})
}

// newMeetingHub has n clusters, which answer when all of them are asked.
func newMeetingHub(t *testing.T, n int) (kubeconfig string) {
	t.Helper()
	var list v1alpha1.ClusterList
	for i := range n {
		list.Items = append(list.Items, clitest.ClusterOf(fmt.Sprintf("c%d", i), metav1.ConditionTrue, ""))
	}
	paths := clitest.PathsOf(list)
	var all sync.WaitGroup
	all.Add(n)
	for path, answer := range paths {
		if strings.HasSuffix(path, "/proxy/version") {
			paths[path] = func() (int, any) {
				all.Done()
				all.Wait()
				return answer()
			}
		}
	}
	return clitest.HubOfPaths(t, paths)
}

// newLateHub has cluster c1, which is away for whoever asks first and second.
func newLateHub(t *testing.T) (kubeconfig string) {
	t.Helper()
	paths := clitest.PathsOf(v1alpha1.ClusterList{Items: []v1alpha1.Cluster{clitest.ClusterOf("c1", metav1.ConditionTrue, "")}})
	const path = "/c1/proxy/version"
	answer := paths[cli.GroupPath+path]
	var asked atomic.Int32
	paths[cli.GroupPath+path] = func() (int, any) {
		if asked.Add(1) <= 2 {
			return 503, clitest.StatusOf(503, metav1.StatusReasonServiceUnavailable, "", "no agent")
		}
		return answer()
	}
	return clitest.HubOfPaths(t, paths)
}
