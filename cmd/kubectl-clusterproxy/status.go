package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
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

func (p *plugin) statusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:               "status [CLUSTER...]",
		Short:             "Show which clusters can be reached, and since when and why others cannot",
		Example:           "  kubectl clusterproxy status\n  kubectl clusterproxy status c1 c2 --output=wide\n  kubectl clusterproxy status --watch",
		ValidArgsFunction: p.completeClusters,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.status(cmd.Context(), args, o) },
	}
	cmd.SuggestFor = []string{"get", "list", "clusters", "health"}
	outputFlag(cmd, &o.output, "wide", "name", "json", "yaml")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on, and show clusters when they change")
	return cmd
}

func (p *plugin) status(ctx context.Context, names []string, o statusOptions) error {
	if o.watch && o.output != "" && !o.wide() {
		return errors.New("--watch writes text: leave out --output, or let it be wide")
	}
	hub, err := p.hub()
	if err != nil {
		return err
	}
	progress := p.progress()
	progress.doing("listing clusters")
	found, err := clusters(ctx, hub, names)
	progress.done()
	if err != nil {
		return err
	}
	if o.watch {
		ticker := time.NewTicker(statusEvery)
		defer ticker.Stop()
		return p.watchStatus(ctx, found, o.wide(), ticker.C, func() ([]v1alpha1.Cluster, error) { return clusters(ctx, hub, names) })
	}
	if o.output == "name" {
		for _, c := range found {
			fmt.Fprintf(p.out, "cluster.%s/%s\n", v1alpha1.GroupVersion.Group, oneLine(c.Name))
		}
	} else if printed, err := p.print(o.output, clusterList(found)); err != nil {
		return err
	} else if !printed && len(found) > 0 {
		p.printStatus(found, o.wide())
	}
	switch {
	case len(found) == 0:
		return errNoCluster
	case len(awayOf(found)) > 0:
		return errNotGood
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
func (p *plugin) printStatus(found []v1alpha1.Cluster, wide bool) {
	table := statusTable{wide: wide}
	fmt.Fprint(p.out, table.text(found))
	away := awayOf(found)
	for i, c := range away {
		if i == mostExplained {
			fmt.Fprintf(p.err, "%s not available; -o wide has the reasons.\n", count(len(away)-i, "more cluster"))
			break
		}
		name := oneLine(c.Name)
		fmt.Fprintf(p.err, "%s is not available%s; see: kubectl clusterproxy check %s\n", name, oneLine(why(c)), name)
	}
	fmt.Fprintf(p.err, "%d of %s available.\n", len(found)-len(away), count(len(found), "cluster"))
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
func (p *plugin) watchStatus(ctx context.Context, found []v1alpha1.Cluster, wide bool, ticks <-chan time.Time, ask func() ([]v1alpha1.Cluster, error)) error {
	table := statusTable{wide: wide}
	fmt.Fprint(p.out, table.text(found))
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
				fmt.Fprintln(p.err, "error:", failure)
			}
			continue
		}
		failure = ""
		changed, gone := changes(found, now)
		fmt.Fprint(p.out, table.text(changed))
		for _, name := range gone {
			fmt.Fprintf(p.err, "%s is gone, or you may not reach it any more.\n", oneLine(name))
		}
		found = now
	}
}

// changes returns the clusters of now that are not as they were, and the names of those that
// are not there any more. What always moves does not count.
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

// statusTable writes clusters as rows. Its columns keep their widths from one text to the
// next, and the first one has a header.
type statusTable struct {
	wide   bool
	widths []int
}

func (t *statusTable) text(found []v1alpha1.Cluster) string {
	var rows [][]string
	if t.widths == nil {
		header := []string{"NAME", "AVAILABLE", "LATENCY", "VERSION", "LAST SEEN", "REASON"}
		if t.wide {
			header = append(header, "CONNECTIONS", "MESSAGE")
		}
		rows, t.widths = append(rows, header), make([]int, len(header))
	}
	for _, c := range found {
		rows = append(rows, t.row(c))
	}
	for _, row := range rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		last := len(row) - 1
		for last > 0 && row[last] == "" {
			last--
		}
		for i, cell := range row[:last] {
			fmt.Fprintf(&text, "%-*s   ", t.widths[i], cell)
		}
		text.WriteString(row[last] + "\n")
	}
	return text.String()
}

func (t *statusTable) row(c v1alpha1.Cluster) []string {
	latency := "<none>"
	if c.Status.Latency != nil {
		latency = c.Status.Latency.Duration.String()
	}
	row := []string{c.Name, string(c.Status.Available), latency, c.Status.Version, age(c), c.Status.Reason}
	if t.wide { // the connections are those of the replica that answered: 0 says nothing of the cluster
		row = append(row, fmt.Sprint(c.Status.Tunnels), c.Status.Message)
	}
	for i, cell := range row {
		row[i] = oneLine(cell)
	}
	return row
}
