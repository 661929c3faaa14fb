package diagnose

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

const (
	// logLines and logBytes bound the log of one container.
	logLines = 5000
	logBytes = 2 << 20
)

// collect reads everything. It notes what cannot be read, and goes on.
func (b *bundle) collect(ctx context.Context, names []string) {
	findings, found := checkHub(ctx, b.hub.client, names)
	b.hubFindings = findings
	if len(names) > 0 {
		var clusters [][]finding
		for _, c := range found {
			b.says("cluster " + c.Name)
			clusters = append(clusters, checkCluster(ctx, b.hub.client, c))
		}
		findings = append(append(findings, checkTunnels(clusters)...), slices.Concat(clusters...)...)
	}
	b.collectHub(ctx)
	for _, name := range names { // also of one of which the proxy API says nothing
		if b.isName("cluster", name) {
			findings = append(findings, b.collectCluster(ctx, name))
		}
	}
	b.addFindings("findings.txt", findings)
	b.addFindings("precheck.txt", precheck(ctx, b.hub.client))
	b.add("status.txt", lines(func(p *cli.Factory) { printStatus(p, found, true) }))
	b.finish()
}

// addFindings writes what check prints.
func (b *bundle) addFindings(name string, findings []finding) {
	b.add(name, lines(func(p *cli.Factory) {
		for _, f := range findings {
			printFinding(p, f)
		}
	}))
}

// collectHub reads what the hub has.
func (b *bundle) collectHub(ctx context.Context) {
	named := "?fieldSelector=metadata.name%3D" + identity.AddonName
	selected := "?labelSelector=open-cluster-management.io%2Faddon-name%3D" + identity.AddonName
	group := "/apis/" + proxyv1alpha1.GroupVersion.String()
	for _, f := range []struct{ name, path string }{
		{"version", "/version"},
		{"clusters", cli.GroupPath},
		{"fleetviews", cli.ViewsPath},
		{"apiservice", "/apis/apiregistration.k8s.io/v1/apiservices/" + v1alpha1.GroupVersion.Version + "." + v1alpha1.GroupVersion.Group},
		{"clustermanagementaddon", cli.AddonAPI + "/clustermanagementaddons/" + identity.AddonName},
		{"managedclusteraddons", cli.AddonAPI + "/managedclusteraddons" + named},
		{"addondeploymentconfigs", cli.AddonAPI + "/addondeploymentconfigs"},
		{"managedclusters", "/apis/cluster.open-cluster-management.io/v1/managedclusters"},
		{"certificatesigningrequests", "/apis/certificates.k8s.io/v1/certificatesigningrequests" + selected},
	} {
		b.addRead(ctx, "hub/"+f.name+".yaml", b.hub, f.path)
	}
	works := b.read(ctx, b.hub, "/apis/work.open-cluster-management.io/v1/manifestworks"+selected)
	for _, work := range itemsOf(works) {
		delete(work, "spec") // what it installs; its status says what became of that
	}
	if works != nil {
		b.addObject("hub/manifestworks.yaml", works)
	}
	configurations := b.read(ctx, b.hub, group+"/managedproxyconfigurations")
	namespace := ""
	for _, configuration := range itemsOf(configurations) {
		if at, _, _ := unstructured.NestedString(configuration, "spec", "proxyServer", "namespace"); at != "" {
			namespace = at
		}
	}
	if configurations != nil {
		b.addObject("hub/managedproxyconfigurations.yaml", configurations)
	}
	if namespace != "" {
		b.collectNamespace(ctx, "hub", b.hub, namespace)
	}
}

// collectCluster reads a cluster's side, and returns whether its agents run.
func (b *bundle) collectCluster(ctx context.Context, cluster string) finding {
	there := side{b.hub.client, cli.GroupPath + "/" + cluster + "/" + v1alpha1.ProxySubresource}
	if b.direct != nil {
		there = side{client: b.direct}
	}
	folder := "clusters/" + cluster
	b.addRead(ctx, folder+"/version.yaml", there, "/version")
	namespace := identity.DefaultAgentNamespace
	if addon := b.read(ctx, b.hub, cli.AddonAPI+"/namespaces/"+cluster+"/managedclusteraddons/"+identity.AddonName); addon != nil {
		b.addObject(folder+"/managedclusteraddon.yaml", addon)
		if at, _, _ := unstructured.NestedString(addon, "status", "namespace"); at != "" {
			namespace = at
		}
	}
	return checkAgents(cluster, b.collectNamespace(ctx, folder, there, namespace))
}

// collectNamespace reads what the addon has in a namespace, and returns its pods.
func (b *bundle) collectNamespace(ctx context.Context, folder string, from side, namespace string) (ours []map[string]any) {
	if !b.isName("namespace", namespace) {
		return nil
	}
	in := "/namespaces/" + namespace
	for _, path := range []string{
		"/api/v1" + in + "/events", "/api/v1" + in + "/services", "/apis/discovery.k8s.io/v1" + in + "/endpointslices",
		"/apis/networking.k8s.io/v1" + in + "/networkpolicies", "/apis/policy/v1" + in + "/poddisruptionbudgets", "/apis/coordination.k8s.io/v1" + in + "/leases",
	} {
		b.addRead(ctx, folder+"/namespace/"+path[strings.LastIndex(path, "/")+1:]+".yaml", from, path)
	}
	b.addOurs(ctx, folder+"/namespace/deployments.yaml", from, "/apis/apps/v1"+in+"/deployments", func(deployment map[string]any) map[string]any {
		template, _, _ := unstructured.NestedMap(deployment, "spec", "template")
		return template
	})
	ours = b.addOurs(ctx, folder+"/namespace/pods.yaml", from, "/api/v1"+in+"/pods", func(pod map[string]any) map[string]any { return pod })
	for _, pod := range ours {
		b.collectLogs(ctx, folder, from, "/api/v1"+in, pod)
	}
	return ours
}

// addOurs adds those objects of a list that run the addon's pods, and returns them. Programs of others
// in the same namespace are no part of an issue, and may have credentials.
func (b *bundle) addOurs(ctx context.Context, file string, from side, path string, pod func(map[string]any) map[string]any) (ours []map[string]any) {
	list := b.read(ctx, from, path)
	if list == nil {
		return nil
	}
	items := []any{}
	for _, item := range itemsOf(list) {
		if isOurs(pod(item)) {
			ours, items = append(ours, item), append(items, item)
		}
	}
	list["items"] = items
	b.addObject(file, list)
	return ours
}

// isOurs reports whether a pod is one of the addon's: a namespace may have others.
func isOurs(pod map[string]any) bool {
	labels, _, _ := unstructured.NestedStringMap(pod, "metadata", "labels")
	_, isComponent := labels["proxy.open-cluster-management.io/component-name"]
	return isComponent || labels["open-cluster-management.io/addon"] == identity.AddonName
}

// collectLogs reads the logs of a pod's containers.
func (b *bundle) collectLogs(ctx context.Context, folder string, from side, namespace string, pod map[string]any) {
	name, _, _ := unstructured.NestedString(pod, "metadata", "name")
	statuses, _, _ := unstructured.NestedSlice(pod, "status", "containerStatuses")
	for _, s := range statuses {
		status, _ := s.(map[string]any)
		container, _, _ := unstructured.NestedString(status, "name")
		restarts, _, _ := unstructured.NestedFloat64(status, "restartCount")
		if !b.isName("pod", name) || !b.isName("container", container) {
			continue
		}
		path := fmt.Sprintf("%s/pods/%s/log", namespace, name)
		file := folder + "/logs/" + name + "." + container
		b.collectLog(ctx, file+".log", from, path, container, false)
		if restarts > 0 {
			b.collectLog(ctx, file+".previous.log", from, path, container, true)
		}
	}
}

func (b *bundle) collectLog(ctx context.Context, file string, from side, path, container string, previous bool) {
	query := url.Values{
		"container": {container}, "tailLines": {fmt.Sprint(logLines)}, "limitBytes": {fmt.Sprint(logBytes)}, "timestamps": {"true"}, "previous": {fmt.Sprint(previous)},
	}
	log, err := b.fetch(ctx, from, path+"?"+query.Encode())
	if err != nil {
		b.miss(from.prefix+path+" of container "+container, err)
		return
	}
	b.add(file, log[:min(len(log), logBytes)])
}

// isName reports whether what a cluster calls something is a name. Another text could make a
// path of the hub of it, or of this machine.
func (b *bundle) isName(what, name string) bool {
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		b.miss(what+" "+name, errors.New("this is no name: "+errs[0]))
		return false
	}
	return true
}

// itemsOf are the objects of a list.
func itemsOf(list map[string]any) (items []map[string]any) {
	all, _ := list["items"].([]any)
	for _, item := range all {
		if object, ok := item.(map[string]any); ok {
			items = append(items, object)
		}
	}
	return items
}

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
