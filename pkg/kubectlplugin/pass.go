package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// minPass is the shortest life of a token that Kubernetes makes.
const minPass = 10 * time.Minute

// passRoles are the roles by what users write for them.
var passRoles = map[string]v1alpha1.PassRole{"viewer": v1alpha1.PassViewer, "user": v1alpha1.PassUser}

// passOptions are the flags of the command pass create.
type passOptions struct {
	clusters, clusterSets         []string
	role, view, clusterRole, file string
	life                          time.Duration
	// namespace is the one that clusterRole is limited to, and that contexts have.
	namespace string
}

func (p *plugin) passCommand() *cobra.Command {
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
		RunE: func(cmd *cobra.Command, _ []string) error { return p.listPasses(cmd.Context(), output) },
	}
	outputFlag(list, &output, "name")
	cmd.AddCommand(p.passCreateCommand(), list, &cobra.Command{
		Use: "revoke PASS...", Example: "  kubectl clusterproxy pass revoke ann", Short: "End passes now: requests, and streams that are open", Args: arguments(1, math.MaxInt),
		ValidArgsFunction: p.completePasses,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.revokePasses(cmd.Context(), args) },
	})
	return cmd
}

func (p *plugin) passCreateCommand() *cobra.Command {
	var options passOptions
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a pass, and write its kubeconfig",
		Long: `Make a pass: a service account of the hub with the right to some clusters, and a kubeconfig with its token, which
ends after --for. The kubeconfig has a context for each cluster of --clusters, and context "fleet" for all clusters of the
pass at once. Clusters of --clustersets are reached by "fleet" alone, one of them as NAME@CLUSTER: the hub's
kube-apiserver knows the rights to clusters by their names, and none by set.

Role viewer reads, role user sends any request. What the pass may do on a cluster is decided there, for the user that
the command prints. With --cluster-role a ManifestWork binds that ClusterRole to the user on each cluster, in
--namespace only if that is given; for --clustersets, on the clusters that are in the sets now.

You need ClusterRole and Role cluster-proxy-pass-issuer, and each right that you give away. If a step fails, what was
made before is removed.`,
		Example: `  kubectl clusterproxy pass create ann --clusters cluster1,cluster2 --for 4h -o ann.kubeconfig
  kubectl clusterproxy pass create oncall --clustersets prod --role user --cluster-role edit --namespace shop`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.namespace = p.overrides.Context.Namespace
			return p.createPass(cmd.Context(), args[0], options)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&options.clusters, "clusters", nil, "the managed clusters that the pass is for")
	flags.StringSliceVar(&options.clusterSets, "clustersets", nil, "ManagedClusterSets: the pass is for each cluster that is in one at the time of a request")
	flags.StringVar(&options.role, "role", "viewer", "what the pass allows on the hub: viewer reads, user sends any request")
	flags.DurationVar(&options.life, "for", 8*time.Hour, "how long the pass lasts, 10m or more")
	flags.StringVar(&options.view, "view", viewAll, `the FleetView behind context "fleet"; empty: no such context, and no right to a view`)
	flags.StringVar(&options.clusterRole, "cluster-role", "", "a ClusterRole of the clusters that the pass gets there, by ManifestWork; with --namespace only in that namespace")
	flags.StringVarP(&options.file, "output-file", "o", "", "write the kubeconfig into this new file instead of standard output")
	for name, complete := range map[string]cobra.CompletionFunc{
		"clusters": p.completeClusters, "role": cobra.FixedCompletions([]cobra.Completion{"viewer", "user"}, cobra.ShellCompDirectiveNoFileComp), "view": p.completeViews,
	} {
		if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
			panic(err) // the flags are above
		}
	}
	return cmd
}

// validate refuses what cannot be, before anything is made.
func (o *passOptions) validate(name string) error {
	var errs []error
	check := func(what string, is func(string) []string, values ...string) {
		for _, value := range values {
			if wrong := is(value); len(wrong) > 0 {
				errs = append(errs, fmt.Errorf("%s %q: %s", what, value, wrong[0]))
			}
		}
	}
	optional := func(is func(string) []string) func(string) []string {
		return func(value string) []string {
			if value == "" {
				return nil
			}
			return is(value)
		}
	}
	check("the name of the pass is", validation.IsDNS1123Label, name)
	check("--clusters has", validation.IsDNS1123Subdomain, o.clusters...)
	check("--clustersets has", validation.IsDNS1123Subdomain, o.clusterSets...)
	check("--view is", optional(validation.IsDNS1123Subdomain), o.view)
	check("--namespace is", optional(validation.IsDNS1123Label), o.namespace)
	check("--cluster-role is", optional(path.IsValidPathSegmentName), o.clusterRole)
	if len(o.clusters)+len(o.clusterSets) == 0 {
		errs = append(errs, errors.New("name the clusters of the pass with --clusters, or sets of them with --clustersets"))
	}
	if len(o.clusters) == 0 && o.view == "" {
		errs = append(errs, errors.New("clusters of --clustersets are reached by a view: leave out --view="))
	}
	if passRoles[o.role] == "" {
		errs = append(errs, fmt.Errorf("--role is %q: it must be viewer or user", o.role))
	}
	if o.life < minPass {
		errs = append(errs, fmt.Errorf("--for is %s: Kubernetes makes no token for less than %s", o.life, minPass))
	}
	return errors.Join(errs...)
}

// completePasses completes names of passes.
func (p *plugin) completePasses(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.complete(cmd, args, func(ctx context.Context, hub kubernetes.Interface) (names []cobra.Completion, err error) {
		found, err := passes(ctx, hub)
		for _, pass := range found {
			names = append(names, pass.Name)
		}
		return names, err
	})
}
