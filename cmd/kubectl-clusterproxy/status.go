package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
)

func (p *plugin) statusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:               "status [CLUSTER...]",
		Short:             "Show which clusters can be reached; the exit status is 1 if one cannot",
		ValidArgsFunction: p.completeClusters,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.status(cmd.Context(), args, output) },
	}
	outputFlag(cmd, &output, "json", "yaml")
	return cmd
}

func (p *plugin) status(ctx context.Context, names []string, output string) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	found, err := clusters(ctx, hub, names)
	if err != nil {
		return err
	}
	var away []string
	for _, c := range found {
		if c.Status.Available != metav1.ConditionTrue {
			away = append(away, c.Name)
		}
	}
	printed, err := p.print(output, found)
	if err != nil {
		return err
	}
	if !printed {
		if err := p.statusTable(found); err != nil {
			return err
		}
		for _, name := range away {
			name = oneLine(name)
			fmt.Fprintf(p.err, "%s is not available; see: kubectl get managedclusteraddon -n %s cluster-proxy -o yaml\n", name, name)
		}
	}
	if len(away) > 0 {
		return errNotGood
	}
	return nil
}

func (p *plugin) statusTable(found []v1alpha1.Cluster) error {
	if len(found) == 0 {
		fmt.Fprintln(p.err, "There is no cluster that you may reach.")
		return nil
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tAVAILABLE\tTUNNELS\tLATENCY\tVERSION\tLAST SEEN")
	for _, c := range found {
		latency, seen := "<none>", "<unknown>"
		if c.Status.Latency != nil {
			latency = c.Status.Latency.Duration.String()
		}
		if c.Status.LastSeen != nil {
			seen = duration.HumanDuration(time.Since(c.Status.LastSeen.Time))
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", oneLine(c.Name), oneLine(string(c.Status.Available)), c.Status.Tunnels, latency, oneLine(c.Status.Version), seen)
	}
	return w.Flush()
}
