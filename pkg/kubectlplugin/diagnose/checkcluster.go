package diagnose

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// checkCluster sends requests all the way. Of a cluster that does not answer, or is not
// available, it looks at what the hub knows, which tells a dead cluster from a dead tunnel.
func checkCluster(ctx context.Context, hub kubernetes.Interface, c v1alpha1.Cluster) []finding {
	available := finding{ID: "cluster-available", Cluster: c.Name, OK: c.Status.Available == metav1.ConditionTrue, Text: "the addon is available"}
	if !available.OK {
		available.Text = fmt.Sprintf("the addon's condition Available is %s%s", c.Status.Available, why(c))
	}
	api := checkClusterAPI(ctx, hub, c.Name)
	if available.OK && api.OK {
		return []finding{available, api, checkIdentity(ctx, hub, c.Name), checkStreams(ctx, hub, c.Name)}
	}
	if !available.OK {
		available.Remedy = "the lines above say why; if you may not read that, have an administrator of the hub run: kubectl clusterproxy check " + c.Name
	}
	return []finding{checkRegistered(ctx, hub, c.Name), checkInstalled(ctx, hub, c.Name), available, api}
}

// verdictOf says what is wrong with a cluster as a whole.
func verdictOf(findings []finding) (text string, isBad bool) {
	of := func(id string) finding {
		i := slices.IndexFunc(findings, func(f finding) bool { return f.ID == id })
		if i < 0 {
			return finding{OK: true}
		}
		return findings[i]
	}
	registered, api := of("cluster-registered"), of("cluster-api")
	switch {
	case goodOf(findings) == nil:
		return "good", false
	case api.hop == cli.HopHub:
		return "the hub's proxy servers do not answer", true
	case api.hop == cli.HopBehindAgent:
		return "its tunnel is alive, the kube-apiserver behind it is not", true
	case registered.isBad():
		return "the cluster itself is away: the hub hears nothing of it", true
	case of("cluster-installed").isBad():
		return "the addon is not installed there", true
	case api.hop == cli.HopTunnel && registered.OK && !registered.Skipped:
		return "the cluster is alive, its tunnel is not", true
	case !api.OK:
		return "cannot be reached", true
	}
	return "can be reached, and something is not good", true
}

func checkClusterAPI(ctx context.Context, hub kubernetes.Interface, cluster string) finding {
	f := finding{ID: "cluster-api", Cluster: cluster}
	var v version.Info
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, cli.ProbeTimeout)
	defer cancel()
	if err := cli.Get(ctx, hub, cli.GroupPath+"/"+cluster+"/"+v1alpha1.ProxySubresource+"/version", &v); err != nil {
		f.Text = strings.TrimSuffix(err.Error(), "; see: kubectl clusterproxy check "+cluster)
		f.hop, f.Remedy = cli.HopOf(err, cluster)
		return f
	}
	f.OK, f.Text = true, fmt.Sprintf("answers in %s, Kubernetes %s", time.Since(began).Round(time.Millisecond), v.GitVersion)
	return f
}

// checkRegistered asks what OCM knows of the cluster, without the tunnel.
func checkRegistered(ctx context.Context, hub kubernetes.Interface, cluster string) finding {
	f := finding{ID: "cluster-registered", Cluster: cluster}
	var managed clusterv1.ManagedCluster
	if err := cli.Get(ctx, hub, cli.ManagedClustersPath+"/"+cluster, &managed); cli.IsMissing(err, cluster) {
		f.Text, f.Remedy = "there is no ManagedCluster "+cluster, "it has left the hub, or never joined"
		return f
	} else if err != nil {
		return f.unread("ManagedCluster "+cluster, err)
	}
	available := meta.FindStatusCondition(managed.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	switch {
	case !managed.Spec.HubAcceptsClient:
		f.Text, f.Remedy = "the hub has not accepted the ManagedCluster", "clusteradm accept --clusters "+cluster
	case available == nil || available.Status != metav1.ConditionTrue:
		f.Text = "its klusterlet does not report to the hub"
		if available != nil {
			f.Text += fmt.Sprintf(" since %s: %s", available.LastTransitionTime.UTC().Format(time.RFC3339), available.Message)
		}
		f.Remedy = "look at the cluster itself and at its network; the klusterlet is in namespace open-cluster-management-agent there"
	default:
		f.OK, f.Text = true, "ManagedCluster is Available: its klusterlet reports to the hub"
	}
	return f
}

// checkInstalled looks at what the addon has on the hub for the cluster.
func checkInstalled(ctx context.Context, hub kubernetes.Interface, cluster string) finding {
	f := finding{ID: "cluster-installed", Cluster: cluster}
	var addon addonv1alpha1.ManagedClusterAddOn
	path := cli.AddonAPI + "/namespaces/" + cluster + "/managedclusteraddons/" + identity.AddonName
	if err := cli.Get(ctx, hub, path, &addon); cli.IsMissing(err, identity.AddonName) {
		f.Text, f.Remedy = "the cluster has no addon "+identity.AddonName, "the chart's value installByPlacement selects clusters"
		return f
	} else if err != nil {
		return f.unread("its ManagedClusterAddOn", err)
	}
	var works workv1.ManifestWorkList
	if err := cli.Get(ctx, hub, "/apis/work.open-cluster-management.io/v1/namespaces/"+cluster+"/manifestworks?labelSelector=open-cluster-management.io%2Faddon-name%3D"+identity.AddonName, &works); err != nil {
		return f.unread("its ManifestWorks", err)
	}
	for _, work := range works.Items {
		if applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); applied == nil || applied.Status != metav1.ConditionTrue {
			f.Text = "ManifestWork " + work.Name + " is not applied"
			if applied != nil {
				f.Text += ": " + applied.Message
			}
			f.Remedy = "look at the klusterlet's work agent on that cluster"
			return f
		}
	}
	if failed := manifestsFailed(&addon); failed != "" {
		f.Text, f.Remedy = "its ManagedClusterAddOn says that the manifests are not applied: "+failed, "look at the addon manager's log: kubectl clusterproxy bundle "+cluster
		return f
	}
	if len(works.Items) == 0 {
		f.Text, f.Remedy = "there is no ManifestWork of the addon", "look at the addon manager's log: kubectl clusterproxy bundle "+cluster
		return f
	}
	return checkRequests(ctx, hub, f, addon.CreationTimestamp)
}

// checkRequests looks at the last request for a certificate of an addon that was made at made. Many requests
// are why there is no certificate only if none was approved since.
func checkRequests(ctx context.Context, hub kubernetes.Interface, f finding, made metav1.Time) finding {
	selector := "open-cluster-management.io/addon-name=" + identity.AddonName + "," + clusterv1.ClusterNameLabelKey + "=" + f.Cluster
	requests, err := hub.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{LabelSelector: selector})
	f.OK, f.Text = true, "its ManifestWork is applied"
	if err != nil {
		f.Text += "; requests for certificates cannot be read: " + err.Error()
		return f
	}
	last := func(a, b certificatesv1.CertificateSigningRequest) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	}
	if len(requests.Items) == 0 {
		return f // the hub keeps them for an hour
	}
	newest := slices.MaxFunc(requests.Items, last)
	var answers []string
	for _, c := range newest.Status.Conditions {
		answers = append(answers, string(c.Type))
	}
	switch {
	case len(answers) == 0:
		f.OK, f.Text = false, "its request for a certificate, "+newest.Name+", is not answered"
		f.Remedy = "look at the addon manager's pods and log: it approves them"
	case !slices.Contains(answers, string(certificatesv1.CertificateApproved)):
		f.OK, f.Text = false, "its request for a certificate, "+newest.Name+", is "+strings.Join(answers, ", ")
		f.Remedy = "kubectl get csr " + newest.Name + " -o yaml says why"
	case len(requests.Items) >= requestLimit && newest.CreationTimestamp.Before(&made):
		f.OK = false
		f.Text, f.Remedy = tooManyRequests(f.Cluster, len(requests.Items))
	default:
		f.Text += ", its last request for a certificate approved"
	}
	return f
}

// requestLimit is how many requests of a cluster's addon for certificates OCM makes before it
// waits until old ones are gone; a move makes two.
const requestLimit = 10

// tooManyRequests says that OCM makes no more requests of a cluster's addon.
func tooManyRequests(cluster string, n int) (text, remedy string) {
	return fmt.Sprintf("the hub has %s of its addon for certificates: OCM's agent makes none while there are %d", cli.Count(n, "request"), requestLimit),
		"delete those that were answered, which the hub does after an hour: kubectl delete csr -l open-cluster-management.io/addon-name=" + identity.AddonName + "," + clusterv1.ClusterNameLabelKey + "=" + cluster
}

func checkIdentity(ctx context.Context, hub kubernetes.Interface, cluster string) finding {
	f := finding{ID: "cluster-identity", Cluster: cluster}
	ctx, cancel := context.WithTimeout(ctx, cli.ProbeTimeout)
	defer cancel()
	var who v1alpha1.ClusterIdentity
	if err := cli.Get(ctx, hub, cli.IdentityPath(cluster), &who); err != nil {
		f.Text, f.Remedy = err.Error(), "the cluster's owner may have capped what the hub may do there: "+cli.RemedyOf(err, cluster)
		return f
	}
	f.OK, f.Text = true, fmt.Sprintf("you are %q there", who.Cluster.Username)
	for _, sentence := range cli.NotTold(who) {
		f.Text += "; the cluster " + sentence
	}
	return f
}

func checkStreams(ctx context.Context, hub kubernetes.Interface, cluster string) finding {
	f := finding{ID: "cluster-stream", Cluster: cluster, Optional: true}
	may, err := cli.MayOnHub(ctx, hub, "create", v1alpha1.StreamSubresource, cluster)
	switch {
	case err != nil:
		f.Text = err.Error()
	case !may:
		f.Text, f.Remedy = "you may not exec, attach, port-forward or reach Services", "ask an administrator of the hub for the right to create clusters/stream, as ClusterRole cluster-proxy-user has it"
	default:
		f.OK, f.Text = true, "you may exec, attach, port-forward and reach Services"
	}
	return f
}
