package chart

import (
	"bytes"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apirequest"
)

// Pod Security "restricted", and a file system that nobody can write to.
func TestPodsAreRestricted(t *testing.T) {
	for _, deployment := range mustRender(t, everything).deployments(t) {
		pod := deployment.Spec.Template
		if pod.Labels["open-cluster-management.io/addon"] != "cluster-proxy" || pod.Labels["team"] != "a" {
			t.Errorf("%s: pod labels are %v, want those of the addon and of the values", deployment.Name, pod.Labels)
		}
		for key, value := range deployment.Spec.Selector.MatchLabels {
			if pod.Labels[key] != value {
				t.Errorf("%s does not select its own pods: %s=%s", deployment.Name, key, value)
			}
		}
		security := pod.Spec.SecurityContext
		if security == nil || security.RunAsNonRoot == nil || !*security.RunAsNonRoot || security.SeccompProfile == nil ||
			security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: pod security context is %v, want runAsNonRoot and RuntimeDefault", deployment.Name, security)
		}
		if pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Spec.HostIPC {
			t.Errorf("%s uses a namespace of the host", deployment.Name)
		}
		for _, container := range pod.Spec.Containers {
			c := container.SecurityContext
			if c == nil || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem ||
				c.Capabilities == nil || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 {
				t.Errorf("%s/%s: security context is %v, want the restricted profile of pod security", deployment.Name, container.Name, c)
			}
			if len(container.Command) > 0 {
				t.Errorf("%s/%s has a command; the image's entry point is the binary", deployment.Name, container.Name)
			}
		}
	}
}

func TestRightsAreFew(t *testing.T) {
	for role, rules := range mustRender(t, everything).rules(t) {
		for _, rule := range rules {
			for _, list := range [][]string{rule.Verbs, rule.Resources, rule.APIGroups} {
				if slices.Contains(list, "*") {
					t.Errorf("%s has a wildcard: %v", role, rule)
				}
			}
			for _, verb := range []string{"escalate", "bind", "impersonate"} {
				if slices.Contains(rule.Verbs, verb) && len(rule.ResourceNames) == 0 {
					t.Errorf("%s may %s anything: %v", role, verb, rule)
				}
			}
			if slices.Contains(rule.Resources, "signers") && len(rule.ResourceNames) == 0 {
				t.Errorf("%s may use every signer: %v", role, rule)
			}
			if strings.HasPrefix(role, "ClusterRole/") {
				checkClusterWide(t, role, rule)
			}
		}
	}
}

// TestWhatTheHubAsksOfViewers has requests that a viewer sends by the hub's URL, of which the hub's kube-apiserver reads
// the method and what precedes /proxy. A POST to a view needs a right that grants nothing: the proxy API asks about each cluster
// again. The one to a cluster would be the right to create there.
func TestWhatTheHubAsksOfViewers(t *testing.T) {
	const group = "/apis/clusterproxy.open-cluster-management.io/v1alpha1/"
	const review = "/proxy/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	rules := mustRender(t, "").rules(t)["ClusterRole/cluster-proxy-viewer"]
	for request, want := range map[string]bool{
		"GET clusters/cluster1/proxy/api/v1/pods?watch=1": true,
		"GET fleetviews/all/proxy/api/v1/pods?watch=1":    true,
		"POST fleetviews/all" + review:                    true,
		"POST clusters/cluster1" + review:                 false,
		"PUT fleetviews/all/proxy/api/v1/nodes/n":         false,
		"DELETE fleetviews/all/proxy/api/v1/nodes/n":      false,
	} {
		method, path, _ := strings.Cut(request, " ")
		info, err := apirequest.Resolver.NewRequestInfo(httptest.NewRequest(method, group+path, nil))
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, info.APIGroup) && slices.Contains(rule.Resources, info.Resource+"/"+info.Subresource) && slices.Contains(rule.Verbs, info.Verb)
		})
		if got != want {
			t.Errorf("%s: a viewer may %s %s/%s: %t, want %t", request, info.Verb, info.Resource, info.Subresource, got, want)
		}
	}
}

// TestReviewsHaveTheirOwnPriority wants what the proxy API asks about users to be in no queue with what others ask.
func TestReviewsHaveTheirOwnPriority(t *testing.T) {
	for version, want := range map[string]bool{"v1.28.9": false, "v1.29.0": true, "v1.31.4-gke.1": true} {
		rendered, err := renderFor(t, load(t), "", version)
		if err != nil {
			t.Fatal(err)
		}
		found := rendered.byName["FlowSchema/cluster-proxy-reviews"]
		if (found != nil) != want || (rendered.byName["PriorityLevelConfiguration/cluster-proxy-reviews"] != nil) != want {
			t.Fatalf("%s: there is a FlowSchema: %t, want %t with its level", version, found != nil, want)
		}
		if !want {
			continue
		}
		schema := as[flowcontrolv1.FlowSchema](t, found)
		if len(schema.Spec.Rules) != 1 || len(schema.Spec.Rules[0].Subjects) != 1 || schema.Spec.PriorityLevelConfiguration.Name != "cluster-proxy-reviews" {
			t.Fatalf("%s: %+v", version, schema.Spec)
		}
		account := schema.Spec.Rules[0].Subjects[0].ServiceAccount
		if account == nil || account.Namespace != namespace || rendered.byName["ServiceAccount/"+account.Name] == nil {
			t.Errorf("%s: the FlowSchema is for %+v, which there is not", version, account)
		}
	}
}

func checkClusterWide(t *testing.T, role string, rule rbacv1.PolicyRule) {
	t.Helper()
	for _, resource := range []string{"secrets", "pods", "pods/exec", "pods/portforward", "serviceaccounts", "serviceaccounts/token", "namespaces"} {
		if slices.Contains(rule.APIGroups, "") && slices.Contains(rule.Resources, resource) {
			t.Errorf("%s has %v on %s of all namespaces", role, rule.Verbs, resource)
		}
	}
}

var flagName = regexp.MustCompile(`--([a-z0-9-]+)`)

// flags are the flags of every subcommand of the binary.
func flags(t *testing.T) func(subcommand string) []string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "cluster-proxy")
	build := exec.Command("go", "build", "-o", binary, "./cmd/cluster-proxy")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the binary: %v\n%s", err, out)
	}
	return func(subcommand string) []string {
		out, err := exec.Command(binary, subcommand, "--help").CombinedOutput()
		if err != nil {
			t.Fatalf("asking %s for help: %v\n%s", subcommand, err, out)
		}
		var names []string
		for line := range bytes.Lines(out) {
			if match := flagName.FindSubmatch(line); match != nil {
				names = append(names, string(match[1]))
			}
		}
		return names
	}
}

func TestArguments(t *testing.T) {
	known := flags(t)
	for _, deployment := range mustRender(t, everything).deployments(t) {
		for _, container := range deployment.Spec.Template.Spec.Containers {
			names := known(container.Args[0])
			for _, argument := range container.Args[1:] {
				name, value, ok := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
				if !ok || value == "" {
					t.Errorf("%s: argument %q is not --flag=value", deployment.Name, argument)
				}
				if !slices.Contains(names, name) {
					t.Errorf("%s: %s has no flag --%s", deployment.Name, container.Args[0], name)
				}
				checkFile(t, container, value)
			}
			for _, port := range container.Ports {
				number := strconv.Itoa(int(port.ContainerPort))
				if !slices.ContainsFunc(container.Args, func(a string) bool { return strings.HasSuffix(a, "="+number) || strings.HasSuffix(a, ":"+number) }) {
					t.Errorf("%s: no argument sets port %s (%s)", deployment.Name, number, port.Name)
				}
			}
		}
	}
}

// checkFile reports a file name in an argument that is in no volume.
func checkFile(t *testing.T, container corev1.Container, value string) {
	t.Helper()
	if !strings.HasPrefix(value, "/") {
		return
	}
	if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(value+"/", m.MountPath+"/") }) {
		t.Errorf("%s: file %s is in no volume", container.Name, value)
	}
}

// CA keys are in Secrets of the release namespace: who may read those is the
// addon manager, which signs, and nobody else.
func TestOnlyTheSignerReadsSecrets(t *testing.T) {
	rendered := mustRender(t, everything)
	readers := map[string]bool{}
	for role, rules := range rendered.rules(t) {
		for _, rule := range rules {
			if slices.Contains(rule.Resources, "secrets") {
				readers[role] = true
			}
		}
	}
	const manager = "Role/open-cluster-management:cluster-proxy:addon-manager"
	if len(readers) != 1 || !readers[manager] {
		t.Errorf("Secrets are read with %v, want %s alone", readers, manager)
	}
	for name, object := range rendered.byName {
		if kind := object.GetKind(); kind != "RoleBinding" && kind != "ClusterRoleBinding" {
			continue
		}
		binding := as[rbacv1.RoleBinding](t, object) // both kinds have these fields
		if !strings.HasSuffix(binding.RoleRef.Name, ":addon-manager") {
			continue
		}
		if len(binding.Subjects) != 1 || binding.Subjects[0].Kind != "ServiceAccount" || binding.Subjects[0].Name != "cluster-proxy-addon-manager" || binding.Subjects[0].Namespace != namespace {
			t.Errorf("%s gives the signer's rights to %+v", name, binding.Subjects)
		}
	}
	// And no pod but the addon manager's runs with its account or mounts a CA's key.
	for _, deployment := range rendered.deployments(t) {
		pod := deployment.Spec.Template.Spec
		if pod.ServiceAccountName == "cluster-proxy-addon-manager" && deployment.Name != "cluster-proxy-addon-manager" {
			t.Errorf("%s runs as the signer", deployment.Name)
		}
		for _, volume := range pod.Volumes {
			if volume.Secret != nil && strings.HasSuffix(volume.Secret.SecretName, "signer") {
				t.Errorf("%s mounts %s", deployment.Name, volume.Secret.SecretName)
			}
		}
	}
}
