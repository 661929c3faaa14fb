package kubectlplugin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
)

func encoded(t *testing.T, object any) []byte {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// clientOf is a client with a kubeconfig, as the plugin's.
func clientOf(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// hubOfPaths answers each path as its function does, and others with 404.
func hubOfPaths(t *testing.T, paths map[string]func() (int, any)) (kubeconfig string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := paths[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		code, object := answer()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if text, ok := object.(string); ok {
			_, _ = w.Write([]byte(text))
			return
		}
		_, _ = w.Write(encoded(t, object))
	}))
	t.Cleanup(server.Close)
	return writeKubeconfig(t, server)
}

// always is an answer that does not change.
func always(code int, object any) func() (int, any) {
	return func() (int, any) { return code, object }
}

// pathsOf are those of a hub with clusters that are good.
func pathsOf(list v1alpha1.ClusterList) map[string]func() (int, any) {
	paths := map[string]func() (int, any){
		"/version": always(200, `{"gitVersion": "v1.36.3"}`), "/apis/" + v1alpha1.GroupVersion.String(): always(200, `{}`), groupPath: always(200, list),
		apiServicePath: always(200, `{"status": {"conditions": [{"type": "Available", "status": "True"}]}}`),
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": always(201, `{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": true}}`),
	}
	for _, c := range list.Items {
		paths[groupPath+"/"+c.Name+"/proxy/version"] = always(200, `{"gitVersion": "v1.36.3"}`)
		paths[identityPath(c.Name)] = always(200, v1alpha1.ClusterIdentity{})
	}
	return paths
}

// fakeHubOf is a hub with those clusters.
func fakeHubOf(t *testing.T, list v1alpha1.ClusterList) (kubeconfig string) {
	t.Helper()
	return hubOfPaths(t, pathsOf(list))
}

// apiServiceHub answers for its APIService alone.
func apiServiceHub(t *testing.T, code int, answer any) (kubeconfig string) {
	t.Helper()
	return hubOfPaths(t, map[string]func() (int, any){apiServicePath: always(code, answer)})
}

// newMeetingHub has n clusters, which answer when all of them are asked.
func newMeetingHub(t *testing.T, n int) (kubeconfig string) {
	t.Helper()
	var list v1alpha1.ClusterList
	for i := range n {
		list.Items = append(list.Items, clusterOf(fmt.Sprintf("c%d", i), metav1.ConditionTrue, ""))
	}
	paths := pathsOf(list)
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
	return hubOfPaths(t, paths)
}

// newLateHub has cluster c1, which is away for whoever asks first and second.
func newLateHub(t *testing.T) (kubeconfig string) {
	t.Helper()
	paths := pathsOf(v1alpha1.ClusterList{Items: []v1alpha1.Cluster{clusterOf("c1", metav1.ConditionTrue, "")}})
	const path = "/c1/proxy/version"
	answer := paths[groupPath+path]
	var asked atomic.Int32
	paths[groupPath+path] = func() (int, any) {
		if asked.Add(1) <= 2 {
			return 503, statusOf(503, metav1.StatusReasonServiceUnavailable, "", "no agent")
		}
		return answer()
	}
	return hubOfPaths(t, paths)
}
