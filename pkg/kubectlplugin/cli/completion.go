package cli

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

// CompleteClusters completes names of clusters.
func (p *Factory) CompleteClusters(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.Complete(cmd, args, func(ctx context.Context, hub kubernetes.Interface) (names []cobra.Completion, err error) {
		found, err := ListClusters(ctx, hub, nil)
		for _, cluster := range found {
			names = append(names, cluster.Name)
		}
		return names, err
	})
}

// CompleteOneCluster completes the name of one cluster.
func (p *Factory) CompleteOneCluster(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.CompleteClusters(cmd, args, toComplete)
}

// CompleteClusterOrView completes the name of one cluster, or of one view behind an @.
func (p *Factory) CompleteClusterOrView(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || !strings.HasPrefix(toComplete, "@") {
		return p.CompleteOneCluster(cmd, args, toComplete)
	}
	names, directive := p.CompleteViews(cmd, args, toComplete)
	for i := range names {
		names[i] = "@" + names[i]
	}
	return names, directive
}

// CompleteViews completes names of FleetViews.
func (p *Factory) CompleteViews(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.Complete(cmd, args, func(ctx context.Context, hub kubernetes.Interface) (names []cobra.Completion, err error) {
		found, err := ListViews(ctx, hub, nil)
		for _, view := range found {
			names = append(names, view.Name)
		}
		return names, err
	})
}

// Complete offers names that are not among args yet. The shell selects those that begin
// with what was typed; an error is for whoever runs __complete by hand.
func (p *Factory) Complete(
	cmd *cobra.Command, args []string, list func(context.Context, kubernetes.Interface) ([]cobra.Completion, error),
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	p.saidHub = true // nobody reads that between two keys
	hub, err := p.Hub()
	var names []cobra.Completion
	if err == nil {
		names, err = list(ctx, hub)
	}
	if err != nil {
		fmt.Fprintln(p.Err, "completing names:", err)
	}
	var missing []cobra.Completion
	for _, name := range names {
		if !slices.Contains(args, name) {
			missing = append(missing, OneLine(name)) // a tab in it would begin a description
		}
	}
	return missing, cobra.ShellCompDirectiveNoFileComp
}
