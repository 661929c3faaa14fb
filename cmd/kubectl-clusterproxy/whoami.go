package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
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
	outputFlag(cmd, &output, "json", "yaml")
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
	var identity v1alpha1.ClusterIdentity
	if err := get(ctx, hub, identityPath(cluster), &identity); err != nil {
		return fmt.Errorf("asking cluster %q who you are: %w", cluster, err)
	}
	if printed, err := p.print(output, identity); printed {
		return err
	}
	return p.whoamiTable(cluster, identity)
}

func (p *plugin) whoamiTable(cluster string, identity v1alpha1.ClusterIdentity) error {
	w := tabwriter.NewWriter(p.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "WHERE\tUSER\tGROUPS")
	fmt.Fprintf(w, "hub\t%s\t%s\n", oneLine(identity.Hub.Username), oneLine(strings.Join(identity.Hub.Groups, ",")))
	fmt.Fprintf(w, "%s\t%s\t%s\n", oneLine(cluster), oneLine(identity.Cluster.Username), oneLine(strings.Join(identity.Cluster.Groups, ",")))
	return w.Flush()
}
