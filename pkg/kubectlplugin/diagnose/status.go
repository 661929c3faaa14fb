package diagnose

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/liggitt/tabwriter"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

const (
	// mostExplained is how many clusters are explained below the table.
	mostExplained = 10
	// statusEvery is how often --watch asks.
	statusEvery = 2 * time.Second
)

// statusOptions are the flags of status.
type statusOptions struct {
	output string
	watch  bool
}

func (o statusOptions) wide() bool { return o.output == "wide" }

// StatusCommand returns the command status.
func StatusCommand(p *cli.Factory) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:               "status [CLUSTER...]",
		Short:             "Show which clusters can be reached, and since when and why others cannot",
		Example:           "  kubectl clusterproxy status\n  kubectl clusterproxy status c1 c2 --output=wide\n  kubectl clusterproxy status --watch",
		ValidArgsFunction: p.CompleteClusters,
		RunE:              func(cmd *cobra.Command, args []string) error { return showStatus(cmd.Context(), p, args, o) },
	}
	cmd.SuggestFor = []string{"get", "list", "clusters", "health"}
	cli.OutputFlag(cmd, &o.output, "name", "wide")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on, and show clusters when they change")
	return cmd
}

func showStatus(ctx context.Context, p *cli.Factory, names []string, o statusOptions) error {
	if o.watch && o.output != "" && !o.wide() {
		return errors.New("--watch writes text: leave out --output, or let it be wide")
	}
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	progress := p.StartProgress()
	progress.Doing("listing clusters")
	found, err := cli.ListClusters(ctx, hub, names)
	progress.Done()
	if err != nil {
		return err
	}
	if o.watch {
		ticker := time.NewTicker(statusEvery)
		defer ticker.Stop()
		return watchStatus(ctx, p, found, o.wide(), ticker.C, func() ([]v1alpha1.Cluster, error) { return cli.ListClusters(ctx, hub, names) })
	}
	if printed, err := p.Print(o.output, clusterList(found)); err != nil {
		return err
	} else if !printed && len(found) > 0 {
		if err := printStatus(p, found, o.wide()); err != nil {
			return err
		}
	}
	switch {
	case len(found) == 0:
		return cli.ErrNoCluster
	case len(awayOf(found)) > 0:
		return cli.ErrNotGood
	}
	return nil
}

// clusterList is the list as kubectl would print it.
func clusterList(found []v1alpha1.Cluster) v1alpha1.ClusterList {
	for i := range found {
		found[i].TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster"}
	}
	return v1alpha1.ClusterList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterList"}, Items: append([]v1alpha1.Cluster{}, found...)}
}

func awayOf(found []v1alpha1.Cluster) (away []v1alpha1.Cluster) {
	for _, c := range found {
		if c.Status.Available != metav1.ConditionTrue {
			away = append(away, c)
		}
	}
	return away
}

// printStatus writes a table of clusters, and below it why some are not available.
func printStatus(p *cli.Factory, found []v1alpha1.Cluster, wide bool) error {
	if err := p.PrintTable(statusTable(found), wide); err != nil {
		return err
	}
	away := awayOf(found)
	for i, c := range away {
		if i == mostExplained {
			fmt.Fprintf(p.Err, "%s not available; -o wide has the reasons.\n", cli.Count(len(away)-i, "more cluster"))
			break
		}
		name := cli.OneLine(c.Name)
		fmt.Fprintf(p.Err, "%s is not available%s; see: kubectl clusterproxy check %s\n", name, cli.OneLine(why(c)), name)
	}
	fmt.Fprintf(p.Err, "%d of %s available.\n", len(found)-len(away), cli.Count(len(found), "cluster"))
	return nil
}

// why says since when and why a cluster is not available, as far as it is known.
func why(c v1alpha1.Cluster) (text string) {
	if c.Status.LastSeen != nil {
		text = " for " + age(c)
	}
	switch {
	case c.Status.Message != "":
		return text + ": " + c.Status.Message
	case c.Status.Reason != "":
		return text + ": " + c.Status.Reason
	}
	return text
}

func age(c v1alpha1.Cluster) string {
	if c.Status.LastSeen == nil {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(c.Status.LastSeen.Time))
}

// watchStatus writes clusters, and at each tick those that have changed, until ctx is done.
func watchStatus(ctx context.Context, p *cli.Factory, found []v1alpha1.Cluster, wide bool, ticks <-chan time.Time, ask func() ([]v1alpha1.Cluster, error)) error {
	w := newStatusWriter(p, wide)
	if err := w.write(found); err != nil {
		return err
	}
	failure := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		now, err := ask()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if err.Error() != failure { // what goes on is said once
				failure = err.Error()
				fmt.Fprintln(p.Err, "error:", failure)
			}
			continue
		}
		failure = ""
		changed, gone := changes(found, now)
		if err := w.write(changed); err != nil {
			return err
		}
		for _, name := range gone {
			fmt.Fprintf(p.Err, "%s is gone, or you may not reach it any more.\n", cli.OneLine(name))
		}
		found = now
	}
}

// changes returns the clusters of now that are not as they were, and the names of those that
// are not there any more. Fields that always change do not count.
func changes(before, now []v1alpha1.Cluster) (changed []v1alpha1.Cluster, gone []string) {
	was := make(map[string]v1alpha1.Cluster, len(before))
	for _, c := range before {
		was[c.Name] = c
	}
	for _, c := range now {
		old, ok := was[c.Name]
		delete(was, c.Name)
		a, b := old.Status, c.Status
		if !ok || a.Available != b.Available || a.Reason != b.Reason || a.Version != b.Version {
			changed = append(changed, c)
		}
	}
	for _, c := range before {
		if _, ok := was[c.Name]; ok {
			gone = append(gone, c.Name)
		}
	}
	return changed, gone
}

// statusWriter writes clusters as rows. Its columns keep their widths from one table to the
// next, and the first one has a header.
type statusWriter struct {
	printer printers.ResourcePrinter
	w       *tabwriter.Writer
}

func newStatusWriter(p *cli.Factory, wide bool) statusWriter {
	return statusWriter{printers.NewTablePrinter(printers.PrintOptions{Wide: wide}), printers.GetNewTabWriter(p.Out)}
}

func (s statusWriter) write(found []v1alpha1.Cluster) error {
	if err := s.printer.PrintObj(&statusTable(found).Table, s.w); err != nil {
		return err
	}
	return s.w.Flush()
}

func statusTable(found []v1alpha1.Cluster) *cli.Table {
	t := cli.NewTable("Name", "Available", "Latency", "Version", "Last Seen", "Reason")
	t.AddWide("Connections", "Message")
	for _, c := range found {
		latency := ""
		if c.Status.Latency != nil {
			latency = c.Status.Latency.Duration.String()
		}
		// The connections are those of the replica that answered: 0 says nothing of the cluster.
		t.Add(c.Name, string(c.Status.Available), latency, c.Status.Version, age(c), c.Status.Reason, fmt.Sprint(c.Status.Tunnels), c.Status.Message)
	}
	return t
}
