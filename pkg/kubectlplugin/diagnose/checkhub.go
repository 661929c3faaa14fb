package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// soonExpired is when a certificate should have been renewed long ago.
const soonExpired = 7 * 24 * time.Hour

// checkAPI asks the hub's kube-apiserver.
func checkAPI(ctx context.Context, hub kubernetes.Interface) finding {
	f := finding{ID: hubAPI}
	var v version.Info
	if err := cli.Get(ctx, hub, "/version", &v); err != nil {
		f.Text, f.Remedy = err.Error(), strings.TrimSuffix(cli.RemedyOf(err, ""), cli.CheckSaysMore)
		return f
	}
	f.OK, f.Text = true, "answers, Kubernetes "+v.GitVersion
	return f
}

// checkParts looks at the addon's parts on the hub. It skips what the user may not read.
func checkParts(ctx context.Context, hub kubernetes.Interface) []finding {
	findings := []finding{checkAPIService(ctx, hub)}
	var list v1alpha1.ManagedProxyConfigurationList
	configuration := finding{ID: "hub-configuration"}
	if err := cli.Get(ctx, hub, cli.ConfigurationsPath, &list); err != nil {
		return append(findings, configuration.unread("the ManagedProxyConfiguration", err))
	}
	if len(list.Items) == 0 {
		configuration.Text, configuration.Remedy = "there is no ManagedProxyConfiguration", "helm upgrade --install makes it: is the chart installed on this hub?"
		return append(findings, configuration)
	}
	stored := &list.Items[0]
	findings = append(findings, checkConfiguration(stored), checkCertificates(stored, time.Now()))
	namespace := cmp.Or(stored.Spec.ProxyServer.Namespace, cli.HubNamespace)
	var deployments appsv1.DeploymentList
	if err := cli.Get(ctx, hub, "/apis/apps/v1/namespaces/"+namespace+"/deployments", &deployments); err != nil {
		findings = append(findings, finding{ID: "hub-replicas"}.unread("Deployments of namespace "+namespace, err))
	} else {
		findings = append(findings, checkReplicas(deployments.Items))
	}
	found, addons, _ := readVersions(ctx, hub, func(string) {}) // the configuration was read above
	return append(append(findings, checkManifests(addons)...), checkVersions(found))
}

// apiService is what is read of an APIService.
type apiService struct {
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// checkAPIService asks what the control plane thinks of the proxy API: it connects to it
// from elsewhere than the user's requests may come from.
func checkAPIService(ctx context.Context, hub kubernetes.Interface) finding {
	f := finding{ID: "hub-apiservice"}
	name := path.Base(cli.APIServicePath)
	var stored apiService
	err := cli.Get(ctx, hub, cli.APIServicePath, &stored)
	if apierrors.IsNotFound(err) {
		f.Text, f.Remedy = "there is no APIService "+name, "the chart's values enableServiceProxy and proxyAPI.aggregatedAPI make it"
		return f
	}
	if err != nil {
		return f.unread("APIService "+name, err)
	}
	available := meta.FindStatusCondition(stored.Status.Conditions, "Available")
	switch {
	case available == nil:
		f.Text, f.Optional = "the control plane has not looked at APIService "+name+" yet", true
	case available.Status != metav1.ConditionTrue:
		f.Text = fmt.Sprintf("the control plane cannot use APIService %s: %s: %s", name, available.Reason, available.Message)
		f.Remedy = "look at the pods of Service cluster-proxy-addon-user, and at firewalls and NetworkPolicies between the kube-apiserver and their port: the chart's value proxyAPI.port changes it, and docs/how-to/hub-on-a-cloud.md says which one each cloud reaches"
	default:
		f.OK, f.Text = true, "the control plane reaches the proxy API"
	}
	return f
}

// wantedConditions are those of a configuration that must not be False.
var wantedConditions = []string{
	v1alpha1.ConditionTypeConfigurationValid, v1alpha1.ConditionTypeSignerReady, v1alpha1.ConditionTypeProxyServerDeployed,
	v1alpha1.ConditionTypeProxyServerSecretSigned, v1alpha1.ConditionTypeAgentServerSecretSigned, v1alpha1.ConditionTypeProxyClientSecretSigned, v1alpha1.ConditionTypeUserServerSecretSigned,
}

func checkConfiguration(stored *v1alpha1.ManagedProxyConfiguration) finding {
	f := finding{ID: "hub-configuration"}
	var wrong []string
	for _, kind := range wantedConditions {
		if c := meta.FindStatusCondition(stored.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			wrong = append(wrong, fmt.Sprintf("%s is False: %s", kind, cmp.Or(c.Message, c.Reason)))
		}
	}
	if len(wrong) > 0 {
		f.Text = fmt.Sprintf("ManagedProxyConfiguration %s: %s", stored.Name, strings.Join(wrong, "; "))
		f.Remedy = "change what the conditions name: kubectl get managedproxyconfiguration " + stored.Name + " -o yaml"
		return f
	}
	if len(stored.Status.Conditions) == 0 {
		f.Text, f.Optional = fmt.Sprintf("ManagedProxyConfiguration %s has no conditions yet", stored.Name), true
		f.Remedy = "look at the addon manager's pods"
		return f
	}
	f.OK, f.Text = true, fmt.Sprintf("ManagedProxyConfiguration %s is valid", stored.Name)
	for _, kind := range []string{v1alpha1.ConditionTypeHubCARotating, v1alpha1.ConditionTypeAgentCARotating} {
		if meta.IsStatusConditionTrue(stored.Status.Conditions, kind) {
			f.Text += "; a rotation is under way (" + kind + ")"
		}
	}
	return f
}

// checkCertificates looks for the certificate that ends first. The conditions say when.
func checkCertificates(stored *v1alpha1.ManagedProxyConfiguration, now time.Time) finding {
	f := finding{ID: "hub-certificates"}
	var first time.Time
	which := ""
	for _, c := range stored.Status.Conditions {
		_, text, ok := strings.Cut(c.Message, "Expiry:")
		if !ok {
			continue
		}
		text, _, _ = strings.Cut(text, " ")
		end, err := time.Parse(time.RFC3339, strings.TrimRight(text, ",;"))
		if err == nil && (which == "" || end.Before(first)) {
			first, which = end, c.Type
		}
	}
	left := first.Sub(now)
	switch {
	case which == "":
		f.Text, f.Optional = "when certificates end is not known", true
	case left < soonExpired:
		f.Text = fmt.Sprintf("the first ends at %s (condition %s)", first.UTC().Format(time.RFC3339), which)
		f.Remedy = "the addon manager renews them long before: look at its pods and their log"
	default:
		f.OK, f.Text = true, fmt.Sprintf("the first ends in %d days", int(left.Hours())/24)
	}
	return f
}

// checkReplicas looks at the Deployments of the addon's parts.
func checkReplicas(deployments []appsv1.Deployment) finding {
	f := finding{ID: "hub-replicas"}
	var all, missing, single []string
	down := false
	for _, p := range hubParts {
		i := slices.IndexFunc(deployments, func(d appsv1.Deployment) bool { return d.Labels[p.label] == p.value })
		if i < 0 {
			if !p.optional {
				missing, down = append(missing, "no "+p.name), true
			}
			continue
		}
		wanted, ready := int32(1), deployments[i].Status.ReadyReplicas
		if replicas := deployments[i].Spec.Replicas; replicas != nil {
			wanted = *replicas
		}
		one := fmt.Sprintf("%s %d/%d", p.name, ready, wanted)
		all = append(all, one)
		if ready < wanted || wanted == 0 {
			missing, down = append(missing, one), down || ready == 0 && !p.optional
		}
		if wanted == 1 && p.name != "addon manager" && !p.optional {
			single = append(single, p.name)
		}
	}
	switch {
	case len(missing) > 0:
		f.Text, f.Optional = "not all pods are ready: "+strings.Join(missing, ", "), !down
		f.Remedy = "look at the pods: kubectl get pods -A -l open-cluster-management.io/addon=cluster-proxy"
	case len(single) > 0:
		f.Text, f.Optional = strings.Join(all, ", ")+": clusters are away while a single pod is replaced", true
		f.Remedy = "the chart's value replicas=2"
	default:
		f.OK, f.Text = true, strings.Join(all, ", ")
	}
	return f
}

// checkTunnels tells by what clusters answer whether proxy servers do: a process that stands
// still is Running and ready for the kubelet. It returns nothing if they seem to.
func checkTunnels(clusters [][]finding) []finding {
	f := finding{ID: hubTunnels, Remedy: "look at the proxy servers, which may be Running and not answer: " + cli.HubPods}
	unreachable, silent := 0, 0
	for _, found := range slices.Concat(clusters...) {
		switch found.hop {
		case cli.HopHub:
			unreachable++
		case cli.HopSilent:
			silent++
		}
	}
	switch {
	case unreachable > 0:
		f.Text = fmt.Sprintf("the proxy API reaches no proxy server: %s cannot be asked", cli.Count(unreachable, "cluster"))
	case silent > 0 && silent == len(clusters):
		f.Optional, f.Text = true, "no cluster answers: either each is away, or the proxy servers stand still"
	default:
		return nil
	}
	return []finding{f}
}

// checkManifests looks for addons whose manifests the hub could not make or the cluster did not
// apply: a tunnel of the former ones goes on. It returns nothing if there is none.
func checkManifests(addons []addonv1alpha1.ManagedClusterAddOn) []finding {
	var clusters []string
	why := ""
	for i := range addons {
		if failed := manifestsFailed(&addons[i]); failed != "" {
			clusters, why = append(clusters, addons[i].Namespace), failed
		}
	}
	if len(clusters) == 0 {
		return nil
	}
	return []finding{{ID: "hub-manifests", Optional: true,
		Text:   fmt.Sprintf("the agent's manifests are not applied on %s (%s): %s", cli.Count(len(clusters), "cluster"), cli.SomeOf(clusters), why),
		Remedy: "an agent that is there works on as it was; kubectl get managedclusteraddon -A shows all"}}
}

// manifestsFailed says why an addon's manifests are not applied, or nothing.
func manifestsFailed(addon *addonv1alpha1.ManagedClusterAddOn) string {
	if applied := meta.FindStatusCondition(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnManifestApplied); applied != nil && applied.Status == metav1.ConditionFalse {
		return cmp.Or(applied.Message, applied.Reason)
	}
	return ""
}

// checkVersions is command version in one line.
func checkVersions(found versions) finding {
	f := finding{ID: "hub-versions", Optional: true}
	known := []string{}
	for _, p := range found.Parts {
		if p.Version != "" && p.Part != partPlugin && !slices.Contains(known, p.Version) {
			known = append(known, p.Version)
		}
	}
	switch {
	case len(found.Skew) > 0:
		f.Text, f.Remedy = strings.Join(found.Skew, "; "), "kubectl clusterproxy version shows all"
	case len(known) == 0:
		f.Text, f.Skipped = "no version can be read", true
	default:
		f.OK, f.Text = true, strings.Join(known, ", ")
	}
	return f
}
