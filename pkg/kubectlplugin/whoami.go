package kubectlplugin

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

func whoamiCommand(p *cli.Factory) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:               "whoami CLUSTER",
		Short:             "Show who you are on the hub, and who that makes you on a cluster",
		Example:           "  kubectl clusterproxy whoami cluster1",
		Args:              cli.Arguments(1, 1),
		ValidArgsFunction: p.CompleteOneCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return whoami(cmd.Context(), p, args[0], output) },
	}
	cli.OutputFlag(cmd, &output)
	return cmd
}

func whoami(ctx context.Context, p *cli.Factory, cluster, output string) error {
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	if _, err := cli.ListClusters(ctx, hub, []string{cluster}); err != nil {
		return err
	}
	var who v1alpha1.ClusterIdentity
	if err := cli.Get(ctx, hub, cli.IdentityPath(cluster), &who); err != nil {
		return fmt.Errorf("asking cluster %q who you are: %w", cluster, err)
	}
	if printed, err := p.Print(output, who); printed {
		return err
	}
	return whoamiTable(p, cluster, who)
}

func whoamiTable(p *cli.Factory, cluster string, who v1alpha1.ClusterIdentity) error {
	t := cli.NewTable("Where", "User", "Groups")
	t.Add("hub", who.Hub.Username, strings.Join(who.Hub.Groups, ","))
	t.Add(cluster, who.Cluster.Username, strings.Join(who.Cluster.Groups, ","))
	if err := p.PrintTable(t, false); err != nil {
		return err
	}
	for _, sentence := range cli.NotTold(who) {
		fmt.Fprintf(p.Err, "%s %s\n", cli.OneLine(cluster), sentence)
	}
	return nil
}
