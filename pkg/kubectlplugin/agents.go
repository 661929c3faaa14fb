package kubectlplugin

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// checkAgents looks at the pods of a cluster's agents, of which there are none if they could
// not be read.
func checkAgents(cluster string, pods []map[string]any) finding {
	f := finding{ID: "cluster-agents", Cluster: cluster}
	if len(pods) == 0 {
		f.Text = "no pods of agents could be read"
		f.Remedy = "errors.txt says why; with --cluster-kubeconfig they are read without the tunnel"
		return f
	}
	var not []string
	for _, pod := range pods {
		if !isReady(pod) {
			name, _, _ := unstructured.NestedString(pod, "metadata", "name")
			not = append(not, name)
		}
	}
	if len(not) == 0 {
		f.OK, f.Text = true, fmt.Sprintf("all %d agents are ready", len(pods))
		return f
	}
	f.Text = fmt.Sprintf("%d of %d agents are not ready: %s", len(not), len(pods), strings.Join(not, ", "))
	f.Remedy = "their logs say why, in clusters/" + cluster + "/logs; an agent is ready when its tunnel is up"
	return f
}

// isReady reports whether a pod's condition says that it is ready.
func isReady(pod map[string]any) bool {
	conditions, _, _ := unstructured.NestedSlice(pod, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == "Ready" && condition["status"] == "True" {
			return true
		}
	}
	return false
}
