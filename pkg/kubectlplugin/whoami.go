package kubectlplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

func (p *plugin) whoamiCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:               "whoami CLUSTER",
		Short:             "Show who you are on the hub, and who that makes you on a cluster",
		Example:           "  kubectl clusterproxy whoami cluster1",
		Args:              arguments(1, 1),
		ValidArgsFunction: p.completeOneCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.whoami(cmd.Context(), args[0], output) },
	}
	outputFlag(cmd, &output)
	return cmd
}

func identityPath(cluster string) string {
	return groupPath + "/" + cluster + "/" + v1alpha1.IdentitySubresource
}

func (p *plugin) whoami(ctx context.Context, cluster, output string) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	if _, err := clusters(ctx, hub, []string{cluster}); err != nil {
		return err
	}
	var who v1alpha1.ClusterIdentity
	if err := get(ctx, hub, identityPath(cluster), &who); err != nil {
		return fmt.Errorf("asking cluster %q who you are: %w", cluster, err)
	}
	if printed, err := p.print(output, who); printed {
		return err
	}
	return p.whoamiTable(cluster, who)
}

func (p *plugin) whoamiTable(cluster string, who v1alpha1.ClusterIdentity) error {
	t := newTable("Where", "User", "Groups")
	t.add("hub", who.Hub.Username, strings.Join(who.Hub.Groups, ","))
	t.add(cluster, who.Cluster.Username, strings.Join(who.Cluster.Groups, ","))
	if err := p.printTable(t, false); err != nil {
		return err
	}
	if names := lost(who); len(names) > 0 {
		fmt.Fprintf(p.err, "%s is not told of %s: the hub asserts no reserved names there, unless the cluster's owner lists them in allowedReservedNames\n", oneLine(cluster), oneLine(strings.Join(names, ", ")))
	}
	return nil
}

// lost are the user's groups on the hub that the cluster does not get, under their own name or
// the one that the hub's service accounts have there.
func lost(who v1alpha1.ClusterIdentity) []string {
	return slices.DeleteFunc(slices.Clone(who.Hub.Groups), func(group string) bool {
		return slices.Contains(who.Cluster.Groups, group) || slices.Contains(who.Cluster.Groups, identity.OnManagedCluster(group))
	})
}
