package diagnose

import (
	"context"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/agentaddon"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// precheck says what of an installation, OCM's own or of an older release, does not
// go on as it is after an upgrade to this one. Nothing of the addon is asked: it
// reads what is stored on the hub.
func precheck(ctx context.Context, hub kubernetes.Interface) []finding {
	findings := append(checkOwners(ctx, hub), checkConfigurations(ctx, hub)...)
	var addons addonv1alpha1.ManagedClusterAddOnList
	if err := cli.Get(ctx, hub, cli.AddonAPI+"/managedclusteraddons", &addons); err != nil {
		return append(findings, finding{ID: "pre-clusters", Text: err.Error(), Remedy: "you must be able to list managedclusteraddons on the hub"})
	}
	requests, err := hub.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{LabelSelector: "open-cluster-management.io/addon-name=" + identity.AddonName})
	if err != nil {
		findings = append(findings, finding{ID: "pre-requests", Optional: true, Text: err.Error()})
		requests = &certificatesv1.CertificateSigningRequestList{}
	}
	pending := map[string]int{}
	for _, request := range requests.Items {
		pending[request.Labels["open-cluster-management.io/cluster-name"]]++
	}
	check := checkVariables(ctx, hub)
	for i := range addons.Items {
		addon := &addons.Items[i]
		if addon.Name != identity.AddonName {
			continue
		}
		findings = append(findings, check(addon)...)
		if n := pending[addon.Namespace]; n+2 > requestLimit {
			f := finding{ID: "pre-requests", Cluster: addon.Namespace}
			f.Text, f.Remedy = tooManyRequests(addon.Namespace, n)
			findings = append(findings, f)
		}
	}
	return append(append(findings, checkUsers(ctx, hub)), checkResolvers(ctx, hub), checkClientPort(ctx, hub))
}

// checkOwners says whose the objects are that a hub has one of, whichever product made
// them: of two owners one undoes what the other one writes.
func checkOwners(ctx context.Context, hub kubernetes.Interface) []finding {
	var findings []finding
	for _, object := range []struct{ kind, path string }{
		{"ClusterManagementAddOn", cli.AddonAPI + "/clustermanagementaddons/" + identity.AddonName},
		{"ManagedProxyConfiguration", cli.ConfigurationsPath + "/" + identity.AddonName},
	} {
		f := finding{ID: "pre-owner"}
		what := fmt.Sprintf("%s %q", object.kind, identity.AddonName)
		var found metav1.PartialObjectMetadata
		switch err := cli.Get(ctx, hub, object.path, &found); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			f = f.unread(what, err)
		default:
			f.OK, f.Text, f.Remedy = ownerOf(&found)
			f.Text = what + " " + f.Text
		}
		findings = append(findings, f)
	}
	if len(findings) == 0 {
		return []finding{{ID: "pre-owner", OK: true, Text: "no installation has the addon's objects"}}
	}
	return findings
}

// ownerOf reports whether Helm can write an object, whose it is, and what to do if not.
// MultiClusterEngine's operator knows its objects by the label.
func ownerOf(object *metav1.PartialObjectMetadata) (ok bool, text, remedy string) {
	engine := object.Labels["backplaneconfig.name"]
	owner := metav1.GetControllerOf(object)
	if owner != nil && owner.Kind == "MultiClusterEngine" {
		engine = owner.Name
	}
	release := object.Annotations["meta.helm.sh/release-name"]
	switch {
	case engine != "":
		return false, fmt.Sprintf("belongs to MultiClusterEngine %q, whose operator undoes what others write to it", engine),
			"keep its addon, or switch off its component cluster-proxy-addon and wait until this object is gone: docs/how-to/openshift-acm.md says how"
	case owner != nil:
		return false, fmt.Sprintf("belongs to %s %q", owner.Kind, owner.Name), "have its owner remove it before the installation: a hub has one addon of this name"
	case object.Labels["app.kubernetes.io/managed-by"] == "Helm" && release != "":
		return true, fmt.Sprintf("belongs to Helm's release %q in namespace %q, which is the one to upgrade", release, object.Annotations["meta.helm.sh/release-namespace"]), ""
	case object.Labels["app.kubernetes.io/managed-by"] == "Helm":
		return true, "was rendered from a chart by another tool than Helm, such as Argo CD, which is the one to upgrade with", ""
	default:
		return false, "belongs to no release of Helm, which does not write to it",
			"add --take-ownership to helm install or upgrade (Helm 3.17). Do not delete it: the agents of all clusters would go with it"
	}
}

func checkConfigurations(ctx context.Context, hub kubernetes.Interface) []finding {
	var list v1alpha1.ManagedProxyConfigurationList
	if err := cli.Get(ctx, hub, cli.ConfigurationsPath, &list); err != nil {
		return []finding{{ID: "pre-configuration", Text: err.Error(), Remedy: "is cluster-proxy installed on this hub, and may you read managedproxyconfigurations?"}}
	}
	var findings []finding
	for i := range list.Items {
		c := &list.Items[i]
		f := finding{ID: "pre-configuration", OK: true, Text: fmt.Sprintf("ManagedProxyConfiguration %q is valid for this release", c.Name)}
		if _, err := proxyconfig.Normalize(c); err != nil {
			f.OK, f.Text, f.Remedy = false, fmt.Sprintf("ManagedProxyConfiguration %q: %v", c.Name, err), "change it before the upgrade"
		} else if ignored := proxyconfig.IgnoredFlags(c); ignored != "" {
			f.Text += "; ignored: " + ignored
		}
		findings = append(findings, f)
	}
	return findings
}

// checkVariables returns what looks at the AddOnDeploymentConfig that is in force for a
// cluster. One that many clusters have is read once.
func checkVariables(ctx context.Context, hub kubernetes.Interface) func(addon *addonv1alpha1.ManagedClusterAddOn) []finding {
	known := map[addonv1alpha1.ConfigReferent]finding{}
	return func(addon *addonv1alpha1.ManagedClusterAddOn) (findings []finding) {
		for _, reference := range addon.Status.ConfigReferences {
			if reference.Resource != "addondeploymentconfigs" || reference.DesiredConfig == nil {
				continue
			}
			referent := reference.DesiredConfig.ConfigReferent
			f, ok := known[referent]
			if !ok {
				f = checkDeploymentConfig(ctx, hub, referent)
				known[referent] = f
			}
			f.Cluster = addon.Namespace
			findings = append(findings, f)
		}
		return findings
	}
}

func checkDeploymentConfig(ctx context.Context, hub kubernetes.Interface, of addonv1alpha1.ConfigReferent) finding {
	f := finding{ID: "pre-variables"}
	var config addonv1alpha1.AddOnDeploymentConfig
	err := cli.Get(ctx, hub, fmt.Sprintf("%s/namespaces/%s/addondeploymentconfigs/%s", cli.AddonAPI, of.Namespace, of.Name), &config)
	var ignored []string
	if err == nil {
		ignored, err = agentaddon.CheckDeploymentConfig(config.Spec)
	}
	switch {
	case err != nil:
		f.Text = fmt.Sprintf("AddOnDeploymentConfig %q in namespace %q: %v", of.Name, of.Namespace, err)
		f.Remedy = "change it before the upgrade; until then its agent is not replaced, and cannot be reached after it"
	case len(ignored) > 0:
		f.OK, f.Text = true, fmt.Sprintf("AddOnDeploymentConfig %q is valid for this release; ignored: %s", config.Name, strings.Join(ignored, ", "))
	default:
		f.OK, f.Text = true, fmt.Sprintf("AddOnDeploymentConfig %q is valid for this release", config.Name)
	}
	return f
}

// checkUsers looks for subjects of the role that users of the hub need.
func checkUsers(ctx context.Context, hub kubernetes.Interface) finding {
	f := finding{ID: "pre-users", Optional: true, Remedy: "bind ClusterRole cluster-proxy-user to those who use it, or install with proxyAPI.allowAuthenticated=true"}
	bindings, err := hub.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		f.Text = err.Error()
		return f
	}
	for _, binding := range bindings.Items {
		if binding.RoleRef.Kind == "ClusterRole" && (binding.RoleRef.Name == "cluster-proxy-user" || binding.RoleRef.Name == "cluster-proxy-viewer") && hasSubjects(binding) {
			f.OK, f.Text, f.Remedy = true, "ClusterRoleBinding "+binding.Name+" lets users reach clusters", ""
			return f
		}
	}
	f.Text = "no user of the hub is bound to ClusterRole cluster-proxy-user: users of the hub reach no cluster until one is; tokens of clusters go on"
	return f
}

func hasSubjects(binding rbacv1.ClusterRoleBinding) bool { return len(binding.Subjects) > 0 }

// checkResolvers looks for upstream's way to expose Services, which is gone.
func checkResolvers(ctx context.Context, hub kubernetes.Interface) finding {
	f := finding{ID: "pre-resolvers", OK: true, Text: "no ManagedProxyServiceResolver is there"}
	var list metav1.PartialObjectMetadataList
	err := cli.Get(ctx, hub, "/apis/"+v1alpha1.GroupVersion.String()+"/managedproxyserviceresolvers", &list)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		f.OK, f.Optional, f.Text = false, true, err.Error()
	case len(list.Items) > 0:
		f.OK, f.Text = false, cli.Count(len(list.Items), "ManagedProxyServiceResolver")+" on the hub: this release does not read them"
		f.Remedy = "list their Services in the chart's value exposedServices"
	}
	return f
}

// checkClientPort looks at whether clients may come from outside the hub.
func checkClientPort(ctx context.Context, hub kubernetes.Interface) finding {
	f := finding{ID: "pre-client-port", OK: true, Text: "the port for clients is on no load balancer"}
	services, err := hub.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return finding{ID: f.ID, Optional: true, Text: err.Error()}
	}
	for _, service := range services.Items {
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.Spec.Selector["proxy.open-cluster-management.io/component-name"] != "proxy-server" {
			continue
		}
		for _, port := range service.Spec.Ports {
			if port.Port == 8090 {
				f.OK, f.Optional, f.Text = false, true, fmt.Sprintf("load balancer %q leads clients to port 8090, and will not any more", service.Name)
				f.Remedy = "clients outside the hub need a Service of your own for it"
			}
		}
	}
	return f
}
