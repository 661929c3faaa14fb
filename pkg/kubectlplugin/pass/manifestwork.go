package pass

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	workv1 "open-cluster-management.io/api/work/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// bindOnClusters makes a ManifestWork for each cluster that binds the ClusterRole asked for to
// the user that the pass is there. It does not block the deletion of the pass, because a cluster
// that is away keeps its ManifestWorks.
func (n *passInProgress) bindOnClusters(ctx context.Context) error {
	if n.options.clusterRole == "" {
		return nil
	}
	clusters, err := clustersOfSets(ctx, n.hub, n.pass.Spec.ClusterSets)
	if err != nil {
		return explain("its ManifestWorks, for which the clusters of the sets must be known", err)
	}
	account := identity.PassAccount(n.pass.Name, string(n.pass.UID))
	manifest, err := json.Marshal(n.options.bindingThere(account))
	if err != nil {
		return err
	}
	clusters = append(clusters, n.pass.Spec.Clusters...)
	slices.Sort(clusters)
	for _, cluster := range slices.Compact(clusters) {
		work := workv1.ManifestWork{
			TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
			ObjectMeta: n.owned("cluster-proxy-pass-"+account, false),
			Spec: workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{
				Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: manifest}}},
			}},
		}
		work.Namespace = cluster
		path := "/apis/" + workv1.GroupVersion.String() + "/namespaces/" + cluster + "/manifestworks"
		if err := post(ctx, n.hub, path, work, &work); err != nil {
			return explain(fmt.Sprintf("its ManifestWork for cluster %q", cluster), err)
		}
	}
	return nil
}

// bindingThere binds the role on a managed cluster, in one namespace or in all.
func (o *passOptions) bindingThere(account string) runtime.Object {
	meta := metav1.ObjectMeta{Name: identity.PassObject(account), Namespace: o.namespace}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: o.clusterRole}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: identity.PassUser(account)}}
	if o.namespace != "" {
		return &rbacv1.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"}, ObjectMeta: meta, RoleRef: role, Subjects: subjects}
	}
	return &rbacv1.ClusterRoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"}, ObjectMeta: meta, RoleRef: role, Subjects: subjects}
}

// clustersOfSets are the ManagedClusters that are in one of the sets now.
func clustersOfSets(ctx context.Context, hub kubernetes.Interface, sets []string) (names []string, err error) {
	for _, name := range sets {
		path := "/apis/" + clusterv1beta2.GroupVersion.String() + "/managedclustersets/" + name
		var set clusterv1beta2.ManagedClusterSet
		if err := cli.Get(ctx, hub, path, &set); err != nil {
			return nil, err
		}
		selector, err := labelsOfSet(&set)
		if err != nil {
			return nil, fmt.Errorf("reading ManagedClusterSet %q: %w", name, err)
		}
		var list clusterv1.ManagedClusterList
		if err := cli.Get(ctx, hub, "/apis/"+clusterv1.GroupVersion.String()+"/managedclusters?labelSelector="+url.QueryEscape(selector.String()), &list); err != nil {
			return nil, err
		}
		for _, cluster := range list.Items {
			names = append(names, cluster.Name)
		}
	}
	return names, nil
}

// labelsOfSet selects the clusters of a set.
func labelsOfSet(set *clusterv1beta2.ManagedClusterSet) (labels.Selector, error) {
	if by := set.Spec.ClusterSelector; by.SelectorType == clusterv1beta2.LabelSelector {
		return metav1.LabelSelectorAsSelector(by.LabelSelector)
	}
	return labels.SelectorFromSet(labels.Set{clusterv1beta2.ClusterSetLabel: set.Name}), nil
}
