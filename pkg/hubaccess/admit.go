package hubaccess

import (
	"fmt"

	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// NotServedError says why a cluster or an agent of it is not served.
type NotServedError struct {
	Cluster string
	// Reason begins with a verb: "is being deleted". It is empty if there is no such
	// cluster.
	Reason string
}

func (e *NotServedError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("there is no managed cluster %q on this hub: see \"kubectl get managedclusters\"", e.Cluster)
	}
	return fmt.Sprintf("managed cluster %q %s", e.Cluster, e.Reason)
}

// Served returns nil if a cluster may be served, and a *NotServedError otherwise.
func (c *Clusters) Served(cluster string) error {
	_, _, err := c.find(cluster)
	return err
}

// find returns the objects of a cluster that may be served.
func (c *Clusters) find(name string) (*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn, error) {
	no := func(reason string) (*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn, error) {
		return nil, nil, &NotServedError{Cluster: name, Reason: reason}
	}
	cluster, addon := c.cluster(name), c.addon(name)
	switch {
	case cluster == nil:
		return no("")
	case cluster.DeletionTimestamp != nil:
		return no("is being deleted")
	case !cluster.Spec.HubAcceptsClient:
		return no("is not accepted by the hub: set spec.hubAcceptsClient of the ManagedCluster")
	case addon == nil:
		return no("does not have the addon: create ManagedClusterAddOn " + identity.AddonName + " in the cluster's namespace, or have a Placement select the cluster")
	case addon.DeletionTimestamp != nil:
		return no("is losing the addon: ManagedClusterAddOn " + identity.AddonName + " is being deleted")
	}
	return cluster, addon, nil
}

// Admit returns nil if the agent with that certificate belongs to a cluster that
// may be served, and a *NotServedError otherwise.
func (c *Clusters) Admit(agent pki.Agent) error {
	cluster, _, err := c.find(agent.Cluster)
	switch {
	case err != nil:
		return err
	case agent.ClusterUID == string(cluster.UID):
		return nil
	case agent.ClusterUID != "":
		return &NotServedError{agent.Cluster, fmt.Sprintf("has UID %s, and the agent's certificate was issued for UID %s: wait until OCM has renewed the certificate, or remove the agent if it belongs to an earlier cluster of that name", cluster.UID, agent.ClusterUID)}
	// Times in certificates have no fractions of seconds, nor have those of objects.
	case agent.Issued.Before(cluster.CreationTimestamp.Time):
		return &NotServedError{agent.Cluster, "was created after the agent's certificate was issued: wait until OCM has renewed the certificate, or remove the agent if it belongs to an earlier cluster of that name"}
	}
	return nil
}
