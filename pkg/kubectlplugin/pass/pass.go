package pass

import (
	"context"
	"math"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// Command returns the command pass.
func Command(p *cli.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pass",
		Short: "Let somebody use some clusters for some hours",
		Long: `Make, list and revoke passes. A pass is a kubeconfig with a token that ends by itself, and a right to
some clusters of the hub. It is made with your own rights: you can give away only what you have.`,
		// Without these, cobra takes an unknown command for a wish for help, which succeeds.
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var output string
	list := &cobra.Command{
		Use: "list", Example: "  kubectl clusterproxy pass list\n  kubectl clusterproxy pass list -o json", Short: "Show all passes: who made them, for what, and how long they last", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listPasses(cmd.Context(), p, output) },
	}
	cli.OutputFlag(list, &output, "name")
	cmd.AddCommand(passCreateCommand(p), list, &cobra.Command{
		Use: "revoke PASS...", Example: "  kubectl clusterproxy pass revoke ann", Short: "End passes now: requests, and streams that are open", Args: cli.Arguments(1, math.MaxInt),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return completePasses(p, cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return revokePasses(cmd.Context(), p, args) },
	})
	return cmd
}

func passCreateCommand(p *cli.Factory) *cobra.Command {
	var options passOptions
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a pass, and write its kubeconfig",
		Long: `Make a pass: a service account of the hub with the right to some clusters, and a kubeconfig with its token, which
ends after --for. The kubeconfig has a context for each cluster of --clusters, and context "fleet" for all clusters of the
pass at once. Clusters of --clustersets are reached by "fleet" alone, one of them as NAME@CLUSTER: the hub's
kube-apiserver knows the rights to clusters by their names, and none by set.

Role viewer reads, role user sends any request. Each cluster decides what the pass may do there, for the user that
the command prints. With --cluster-role a ManifestWork binds that ClusterRole to the user on each cluster, in
--namespace only if that is given; for --clustersets, on the clusters that are in the sets now.

You need ClusterRole and Role cluster-proxy-pass-issuer, and each right that you give away. If a step fails, what was
made before is removed.`,
		Example: `  kubectl clusterproxy pass create ann --clusters cluster1,cluster2 --for 4h -o ann.kubeconfig
  kubectl clusterproxy pass create oncall --clustersets prod --role user --cluster-role edit --namespace shop`,
		Args: cli.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.namespace = p.Overrides.Context.Namespace
			return createPass(cmd.Context(), p, args[0], options)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&options.clusters, "clusters", nil, "the managed clusters that the pass is for")
	flags.StringSliceVar(&options.clusterSets, "clustersets", nil, "ManagedClusterSets: the pass is for each cluster that is in one at the time of a request")
	flags.StringVar(&options.role, "role", "viewer", "what the pass allows on the hub: viewer reads, user sends any request")
	flags.DurationVar(&options.life, "for", 8*time.Hour, "how long the pass lasts, 10m or more")
	flags.StringVar(&options.view, "view", cli.ViewAll, `the FleetView behind context "fleet"; empty: no such context, and no right to a view`)
	flags.StringVar(&options.clusterRole, "cluster-role", "", "a ClusterRole of the clusters that the pass gets there, by ManifestWork; with --namespace only in that namespace")
	flags.StringVarP(&options.file, "output-file", "o", "", "write the kubeconfig into this new file instead of standard output")
	for name, complete := range map[string]cobra.CompletionFunc{
		"clusters": p.CompleteClusters, "role": cobra.FixedCompletions([]cobra.Completion{"viewer", "user"}, cobra.ShellCompDirectiveNoFileComp), "view": p.CompleteViews,
	} {
		if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
			panic(err) // the flags are above
		}
	}
	return cmd
}

// completePasses completes names of passes.
func completePasses(p *cli.Factory, cmd *cobra.Command, args []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.Complete(cmd, args, func(ctx context.Context, hub kubernetes.Interface) (names []cobra.Completion, err error) {
		found, err := passes(ctx, hub)
		for _, pass := range found {
			names = append(names, pass.Name)
		}
		return names, err
	})
}
