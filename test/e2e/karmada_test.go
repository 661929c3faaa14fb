package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/bench/ground"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const (
	karmadaClusters = "/apis/cluster.karmada.io/v1alpha1/clusters"
	karmadaProxying = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy"
	// karmadaUser has the rights of Karmada's documentation, and no others.
	karmadaUser = "e2e-karmada"
)

// resourceRegistry and clusterProxyRBAC are the objects that Karmada's documentation applies,
// with names of the lab.
const resourceRegistry = `apiVersion: search.karmada.io/v1alpha1
kind: ResourceRegistry
metadata:
  name: proxy-sample
spec:
  targetCluster:
    clusterNames:
  resourceSelectors:
    - apiVersion: v1
      kind: Pod
    - apiVersion: v1
      kind: Node
`

const clusterProxyRBAC = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: cluster-proxy-clusterrole
rules:
- apiGroups: [cluster.karmada.io]
  resources: [clusters/proxy]
  resourceNames: [%s]
  verbs: ['*']
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: cluster-proxy-clusterrolebinding
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-proxy-clusterrole}
subjects:
- {kind: ServiceAccount, name: e2e-karmada, namespace: default}
`

// karmadaShell runs kubectl, and keeps what was typed and answered.
type karmadaShell struct {
	t          *testing.T
	hub        *rest.Config
	tokens     map[string]string
	transcript strings.Builder
}

// try runs kubectl with the kubeconfig of a user, whose server ends in path.
func (s *karmadaShell) try(user, path string, args ...string) (string, error) {
	cfg := &rest.Config{Host: s.hub.Host + path, BearerToken: s.tokens[user], TLSClientConfig: rest.TLSClientConfig{CAFile: s.hub.CAFile, CAData: s.hub.CAData}}
	name := "karmada-" + user
	if path != "" {
		name += "-" + strings.ReplaceAll(strings.Trim(path, "/"), "/", "-")
	}
	cmd, err := installed.KubectlCommand(context.WithoutCancel(s.t.Context()), name, cfg, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is try until it succeeds and its answer has each of the texts. The last try is in the
// transcript.
func (s *karmadaShell) run(user, path, command string, want ...string) string {
	s.t.Helper()
	var out string
	suite.Eventually(s.t, "kubectl "+command+" to answer", func() (err error) {
		out, err = s.try(user, path, strings.Fields(command)...)
		for _, text := range want {
			if !strings.Contains(out, text) {
				return fmt.Errorf("%v: %.1000s, want %q", err, out, text)
			}
		}
		return err
	})
	s.note(user, path, command, out)
	return out
}

// refused is try until it fails with a text.
func (s *karmadaShell) refused(user, path, command, want string) {
	s.t.Helper()
	var out string
	suite.Eventually(s.t, "kubectl "+command+" to be refused", func() (err error) {
		if out, err = s.try(user, path, strings.Fields(command)...); err == nil || !strings.Contains(out, want) {
			return fmt.Errorf("%v: %.1000s, want a failure with %q", err, out, want)
		}
		return nil
	})
	s.note(user, path, command, out)
}

func (s *karmadaShell) note(user, path, command, out string) {
	if len(out) > 700 {
		out = out[:700] + "...\n"
	}
	server := ""
	if path != "" {
		server = " --server https://HUB" + path
	}
	fmt.Fprintf(&s.transcript, "%s$ kubectl%s %s\n%s\n", user, server, strings.ReplaceAll(command, installed.Dir+"/", ""), strings.TrimSuffix(out, "\n"))
}

// newKarmadaShell has an administrator of the hub, and a user who may look at the clusters'
// pods, and at everything of the one that stands for the control plane.
func newKarmadaShell(t *testing.T) *karmadaShell {
	t.Helper()
	if len(installed.Clusters) < 2 || !slices.Contains(installed.Clusters, suite.KarmadaControlPlane) {
		t.Skip("needs two managed clusters, one of which is the control plane")
	}
	s := &karmadaShell{t: t, hub: installed.HubConfig(), tokens: map[string]string{}}
	s.tokens["admin"] = installed.MakeUser(t, "e2e-karmada-admin", suite.Rule("*", "*", suite.AllVerbs))
	s.tokens["user"] = installed.MakeUser(t, karmadaUser, suite.Rule("search.karmada.io", "proxying/proxy", suite.AllVerbs, "karmada"),
		suite.Rule("cluster.karmada.io", "clusters", []string{"get", "list"}))
	for _, cluster := range installed.Clusters {
		rules := suite.Rule("", "pods pods/log nodes", suite.AllVerbs)
		if cluster == suite.KarmadaControlPlane {
			rules = suite.Rule("", "pods pods/log nodes configmaps", suite.AllVerbs)
		}
		installed.MayOn(t, cluster, karmadaUser, rules)
		installed.MayOn(t, cluster, "e2e-karmada-admin", suite.Rule("", "pods", suite.ReadVerbs))
	}
	if _, err := s.try("admin", "", "get", "--raw", "/apis/search.karmada.io/v1alpha1"); err != nil {
		t.Skipf("Karmada's API is not there: %v", err)
	}
	return s
}

func (s *karmadaShell) file(name, content string) string {
	s.t.Helper()
	file := filepath.Join(installed.Dir, name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// TestKarmadaDocumentation runs the commands of Karmada's pages "Aggregated Kubernetes API
// Endpoint" and "Proxy Global Resources" on the hub, and writes them with their answers to the
// file E2E_KARMADA. It disturbs nothing.
func TestKarmadaDocumentation(t *testing.T) {
	releaseOnNodes(t)
	s := newKarmadaShell(t)
	one, other := installed.Clusters[0], installed.Clusters[1]
	t.Cleanup(func() {
		s.t = t
		for _, object := range []string{"clusterrolebinding/cluster-proxy-clusterrolebinding", "clusterrole/cluster-proxy-clusterrole", "resourceregistries.search.karmada.io/proxy-sample"} {
			_, _ = s.try("admin", "", "delete", "--ignore-not-found", object)
		}
	})
	t.Run("AggregatedKubernetesAPIEndpoint", func(t *testing.T) {
		s.t = t
		proxy := karmadaClusters + "/" + one + "/proxy"
		s.refused("user", "", "get --raw "+proxy+"/api/v1/nodes", "Forbidden")
		s.run("admin", "", "apply -f "+s.file("cluster-proxy-rbac.yaml", fmt.Sprintf(clusterProxyRBAC, strings.Join(installed.Clusters, ", "))), "cluster-proxy-clusterrole created")
		s.run("user", "", "get --raw "+proxy+"/api/v1/nodes", `"kind":"NodeList"`)
		s.run("user", proxy, "get node")
		s.run("user", proxy, "get pods -n default", "web-")
		s.run("user", "", "get clusters.cluster.karmada.io", one, other, "Pull")
		s.run("admin", "", "get --raw "+karmadaClusters+"/*/proxy/api/v1/namespaces/default/pods", `"resource.karmada.io/cached-from-cluster":"`+one+`"`, `"resource.karmada.io/cached-from-cluster":"`+other+`"`)
	})
	t.Run("ProxyGlobalResources", func(t *testing.T) {
		s.t = t
		registry := s.file("resourceregistry.yaml", resourceRegistry)
		s.run("admin", "", "apply -f "+registry, "proxy-sample created")
		s.run("admin", "", "get resourceregistries.search.karmada.io", "proxy-sample", "True")
		s.run("user", karmadaProxying, "get pods -n default", "CLUSTER", one, other, "web-")
		s.run("user", karmadaProxying, "get nodes")
		pod := s.podOf(other)
		s.run("user", karmadaProxying, "logs "+pod+" -n default", other)
		s.run("user", "", "get --raw "+karmadaProxying+"/api/v1/namespaces/default/pods/"+pod+"/log", other)
		s.run("user", karmadaProxying, "get pods -n default -l app=web", one, other)
		s.refused("user", karmadaProxying, "run e2e-karmada -n default --image=none", "MethodNotAllowed")
		s.run("user", karmadaProxying, "create configmap e2e-karmada -n default", "created")
		s.run("user", karmadaClusters+"/"+suite.KarmadaControlPlane+"/proxy", "get configmap e2e-karmada -n default", "e2e-karmada")
		s.run("user", karmadaProxying, "delete configmap e2e-karmada -n default", "deleted")
		s.refused("user", karmadaProxying, "get secrets -n default", "forbidden")
		s.refused("user", "", "get resourceregistries.search.karmada.io", "forbidden")
	})
	t.Run("ResourceRegistries", func(t *testing.T) {
		s.t = t
		s.testRegistries()
	})
	if file := os.Getenv("E2E_KARMADA"); file != "" && !t.Failed() {
		if err := ground.Record(file, s.transcript.String()); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("\n" + s.transcript.String())
}

// testRegistries does with a registry what kubectl can.
func (s *karmadaShell) testRegistries() {
	s.t.Helper()
	// Without a registry's pods the control plane's would be there too.
	other := installed.Clusters[0]
	if other == suite.KarmadaControlPlane {
		other = installed.Clusters[1]
	}
	changed := s.file("changed.yaml", strings.Replace(resourceRegistry, "clusterNames:", "clusterNames: ["+other+"]", 1))
	s.run("admin", "", "explain resourceregistry.spec --api-version=search.karmada.io/v1alpha1", "targetCluster", "resourceSelectors")
	s.run("admin", "", "apply --dry-run=server -f "+changed, "configured (server dry run)")
	s.refused("admin", "", "diff -f "+changed, other)
	s.run("admin", "", "apply -f "+changed, "configured")
	suite.Eventually(s.t, "pods of one cluster", func() error {
		out, err := s.try("user", karmadaProxying, "get", "pods", "-n", "default", "-o", "name")
		if err == nil && strings.Contains(out, s.podOf(suite.KarmadaControlPlane)) {
			err = fmt.Errorf("there are %s", out)
		}
		return err
	})
	s.run("admin", "", "apply --server-side --force-conflicts -f "+changed, "serverside-applied")
	s.run("admin", "", "apply --server-side -f "+changed, "serverside-applied")
	s.run("admin", "", `patch resourceregistry.search.karmada.io proxy-sample --type=merge -p {"spec":{"targetCluster":{"clusterNames":null,"fieldSelector":{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}}}}`, "patched")
	s.run("admin", "", "wait --for=condition=Valid=false --timeout=30s resourceregistry.search.karmada.io/proxy-sample", "condition met")
	s.refused("user", karmadaProxying, "get pods -n default", "has no cluster")
	s.run("admin", "", "delete resourceregistry.search.karmada.io proxy-sample", "deleted")
	suite.Eventually(s.t, "the pods of the control plane", func() error {
		out, err := s.try("user", karmadaProxying, "get", "pods", "-n", "default")
		if err == nil && strings.Contains(out, "CLUSTER") {
			err = fmt.Errorf("they are still the view's: %s", out)
		}
		return err
	})
}

// podOf is a pod of a cluster's Deployment web.
func (s *karmadaShell) podOf(cluster string) string {
	s.t.Helper()
	pods, err := suite.Clientset(s.t, installed.Direct(cluster)).CoreV1().Pods("default").List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) == 0 {
		s.t.Fatalf("no pod of %s: %v", cluster, err)
	}
	return pods.Items[0].Name
}
