package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// AskedAtOnce is how many clusters a command asks at the same time.
const AskedAtOnce = 16

// ListClusters returns the clusters that the user may reach, or the named ones of them.
func ListClusters(ctx context.Context, hub kubernetes.Interface, names []string) ([]v1alpha1.Cluster, error) {
	var list v1alpha1.ClusterList
	if err := Get(ctx, hub, GroupPath, &list); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // a cluster's RBAC says the same of what is not there
			if notServed := CheckServed(ctx, hub); notServed != nil {
				return nil, notServed
			}
		}
		if apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("listing clusters: %w; %s", err, RemedyOf(err, ""))
		}
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	if len(names) == 0 {
		return list.Items, nil
	}
	return choose(ctx, hub, list, names)
}

// choose returns the clusters of those names.
func choose(ctx context.Context, hub kubernetes.Interface, list v1alpha1.ClusterList, names []string) ([]v1alpha1.Cluster, error) {
	var chosen []v1alpha1.Cluster
	var missing []string
	for _, name := range names {
		if name == "" {
			return nil, errors.New("the name of a cluster is empty; see: kubectl clusterproxy status")
		}
		i := slices.IndexFunc(list.Items, func(c v1alpha1.Cluster) bool { return c.Name == name })
		if i < 0 {
			missing = append(missing, name)
			continue
		}
		chosen = append(chosen, list.Items[i])
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("no cluster %s that you may reach%s; see: kubectl clusterproxy status", anyOf(missing), whyNot(ctx, hub, missing[0]))
	}
	return chosen, nil
}

// whyNot is for users who may know which clusters there are.
func whyNot(ctx context.Context, hub kubernetes.Interface, name string) string {
	var object metav1.PartialObjectMetadata
	if err := Get(ctx, hub, ManagedClustersPath+"/"+name, &object); IsMissing(err, name) {
		return fmt.Sprintf(" (there is no ManagedCluster %q)", name)
	} else if err != nil {
		return ""
	}
	if err := Get(ctx, hub, AddonAPI+"/namespaces/"+name+"/managedclusteraddons/"+identity.AddonName, &object); IsMissing(err, identity.AddonName) {
		return fmt.Sprintf(" (ManagedCluster %q has no addon %s)", name, identity.AddonName)
	}
	return fmt.Sprintf(" (there is a ManagedCluster %q: you lack the right to it, or it is not accepted)", name)
}

// ConfigFor leads to a cluster, or to a view if the target begins with @, of which the hub
// must know.
func (p *Factory) ConfigFor(ctx context.Context, target string) (*rest.Config, error) {
	config, err := p.HubConfig()
	if err != nil {
		return nil, err
	}
	hub, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	progress := p.StartProgress()
	progress.Doing("asking the hub for " + target)
	defer progress.Done()
	path := GroupPath + "/" + target + "/" + v1alpha1.ProxySubresource
	if view, ok := strings.CutPrefix(target, "@"); ok {
		path = ViewPath(view)
		_, err = ListViews(ctx, hub, []string{view})
	} else {
		_, err = ListClusters(ctx, hub, []string{target})
	}
	if err != nil {
		return nil, err
	}
	to := rest.CopyConfig(config)
	to.Host = strings.TrimSuffix(to.Host, "/") + path
	return to, nil
}

// IdentityPath is where the hub says who the user is on a cluster.
func IdentityPath(cluster string) string {
	return GroupPath + "/" + cluster + "/" + v1alpha1.IdentitySubresource
}

// NotTold says what of the user on the hub a cluster is not told of, in sentences that begin
// after its name.
func NotTold(who v1alpha1.ClusterIdentity) []string {
	groups := slices.DeleteFunc(slices.Clone(who.Hub.Groups), func(group string) bool {
		return slices.Contains(who.Cluster.Groups, group) || slices.Contains(who.Cluster.Groups, identity.OnManagedCluster(group))
	})
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(who.Hub.Extra)), func(key string) bool {
		return who.Cluster.Extra[strings.ToLower(key)] != nil
	})
	var sentences []string
	if len(groups) > 0 {
		sentences = append(sentences, fmt.Sprintf("is not told of groups %s: the hub asserts no reserved names there, unless the cluster's owner lists them in allowedReservedNames", OneLine(strings.Join(groups, ", "))))
	}
	if len(keys) > 0 {
		sentences = append(sentences, fmt.Sprintf("is not told of extras %s: the agent asserts those only that the customized variable extraKeys of its AddOnDeploymentConfig lists", OneLine(strings.Join(keys, ", "))))
	}
	return sentences
}

// MayOnHub asks the hub whether the user has a right to a cluster, or to all if it is empty. The
// hub's kube-apiserver knows no rights by set.
func MayOnHub(ctx context.Context, hub kubernetes.Interface, verb, subresource, cluster string) (bool, error) {
	review, err := hub.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version,
			Resource: v1alpha1.Resource, Subresource: subresource, Name: cluster,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("asking the hub what you may do: %w", err)
	}
	return review.Status.Allowed, nil
}
