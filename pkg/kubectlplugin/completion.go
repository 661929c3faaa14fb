package kubectlplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
)

// completionTimeout bounds what a user waits for after pressing the tab key.
const completionTimeout = 5 * time.Second

// completeClusters completes names of clusters.
func (p *plugin) completeClusters(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.complete(cmd, args, func(ctx context.Context, hub kubernetes.Interface) (names []cobra.Completion, err error) {
		found, err := clusters(ctx, hub, nil)
		for _, cluster := range found {
			names = append(names, cluster.Name)
		}
		return names, err
	})
}

// completeOneCluster completes the name of one cluster.
func (p *plugin) completeOneCluster(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.completeClusters(cmd, args, toComplete)
}

// completeClusterOrView completes the name of one cluster, or of one view behind an @.
func (p *plugin) completeClusterOrView(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || !strings.HasPrefix(toComplete, "@") {
		return p.completeOneCluster(cmd, args, toComplete)
	}
	names, directive := p.completeViews(cmd, args, toComplete)
	for i := range names {
		names[i] = "@" + names[i]
	}
	return names, directive
}

// completeViews completes names of FleetViews.
func (p *plugin) completeViews(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.complete(cmd, args, func(ctx context.Context, hub kubernetes.Interface) (names []cobra.Completion, err error) {
		found, err := views(ctx, hub, nil)
		for _, view := range found {
			names = append(names, view.Name)
		}
		return names, err
	})
}

// complete offers names that are not among args yet. The shell selects those that begin
// with what was typed; an error is for whoever runs __complete by hand.
func (p *plugin) complete(
	cmd *cobra.Command, args []string, list func(context.Context, kubernetes.Interface) ([]cobra.Completion, error),
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	p.saidHub = true // nobody reads that between two keys
	hub, err := p.hub()
	var names []cobra.Completion
	if err == nil {
		names, err = list(ctx, hub)
	}
	if err != nil {
		fmt.Fprintln(p.err, "completing names:", err)
	}
	var missing []cobra.Completion
	for _, name := range names {
		if !slices.Contains(args, name) {
			missing = append(missing, oneLine(name)) // a tab in it would begin a description
		}
	}
	return missing, cobra.ShellCompDirectiveNoFileComp
}
