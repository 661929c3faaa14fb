package diagnose

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// checkAgain is how long --wait waits before it checks again. Tests change it.
var checkAgain = 5 * time.Second

// checkOptions are the flags of check.
type checkOptions struct {
	output   string
	pre, all bool
	wait     time.Duration
}

// CheckCommand returns the command check.
func CheckCommand(p *cli.Factory) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [CLUSTER...]",
		Short: "Find out why a cluster cannot be reached: the hub's parts, the cluster, its tunnel",
		Long: `Find out why a cluster cannot be reached. First the hub: its API, the APIService, the configuration, certificates, replicas and
versions, as far as you may read them. Then all clusters at the same time, or those that are named: of one that does not answer,
whether the cluster reports to the hub and has the addon, or whether it is the tunnel alone.`,
		Example:           "  kubectl clusterproxy check\n  kubectl clusterproxy check cluster1 --wait=5m\n  kubectl clusterproxy check --pre",
		ValidArgsFunction: p.CompleteClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.pre {
				return checkBefore(cmd.Context(), p, o.output)
			}
			return runCheck(cmd.Context(), p, args, o)
		},
	}
	cli.OutputFlag(cmd, &o.output)
	cmd.Flags().BoolVar(&o.pre, "pre", false, "find out before an upgrade, from OCM's own cluster-proxy too, what will not go on as it is")
	cmd.Flags().BoolVar(&o.all, "all", false, "show what was found of clusters that are good, too")
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "check again until everything is good, for this long at most")
	return cmd
}

func checkBefore(ctx context.Context, p *cli.Factory, output string) error {
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	progress := p.StartProgress()
	progress.Doing("reading what is stored on the hub")
	findings := precheck(ctx, hub)
	progress.Done()
	if printed, err := p.Print(output, cli.ListOf("FindingList", findings)); err != nil {
		return err
	} else if !printed {
		for _, f := range findings {
			printFinding(p, f)
		}
	}
	return goodOf(findings)
}

func runCheck(ctx context.Context, p *cli.Factory, names []string, o checkOptions) error {
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	progress := p.StartProgress()
	found := checkAll(ctx, hub, names, progress.Doing)
	for until := time.Now().Add(o.wait); goodOf(found.all()) != nil && time.Now().Before(until) && ctx.Err() == nil; {
		progress.Doing("waiting until everything is good")
		select {
		case <-ctx.Done():
		case <-time.After(checkAgain):
			found = checkAll(ctx, hub, names, progress.Doing)
		}
	}
	progress.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	if printed, err := p.Print(o.output, cli.ListOf("FindingList", found.all())); err != nil {
		return err
	} else if !printed {
		printChecked(p, found, o.all || len(names) > 0)
	}
	return goodOf(found.all())
}

// checked is what was found of the hub, and of each cluster.
type checked struct {
	hub      []finding
	names    []string
	clusters [][]finding
}

func (c *checked) all() []finding {
	all := append([]finding{}, c.hub...)
	for _, findings := range c.clusters {
		all = append(all, findings...)
	}
	return all
}

func checkAll(ctx context.Context, hub kubernetes.Interface, names []string, doing func(what string)) *checked {
	doing("asking the hub")
	findings, found := checkHub(ctx, hub, names)
	c := &checked{hub: findings, clusters: make([][]finding, len(found))}
	doing("asking " + cli.Count(len(found), "cluster"))
	var group errgroup.Group
	group.SetLimit(cli.AskedAtOnce)
	for i, cluster := range found {
		c.names = append(c.names, cluster.Name)
		group.Go(func() error {
			c.clusters[i] = checkCluster(ctx, hub, cluster)
			return nil
		})
	}
	_ = group.Wait() // what goes wrong is a finding
	c.hub = append(c.hub, checkTunnels(c.clusters)...)
	return c
}

// printChecked writes what was found, the clusters that are not good whole, and the others
// too if all are wanted.
func printChecked(p *cli.Factory, found *checked, all bool) {
	fmt.Fprintln(p.Out, "hub")
	for _, f := range found.hub {
		printBelow(p, "", f)
	}
	var bad []string
	for i, name := range found.names {
		if goodOf(found.clusters[i]) != nil {
			bad = append(bad, name)
		}
	}
	if total := len(found.names); total > 0 {
		fmt.Fprintf(p.Out, "clusters: %d of %d good\n", total-len(bad), total)
	}
	for i, name := range found.names {
		verdict, isBad := verdictOf(found.clusters[i])
		if !isBad && !all {
			continue
		}
		mark := "√"
		if isBad {
			mark = "×"
		}
		fmt.Fprintf(p.Out, "%s %s: %s\n", mark, cli.OneLine(name), verdict)
		for _, f := range found.clusters[i] {
			printBelow(p, "  ", f)
		}
	}
	fmt.Fprintln(p.Out, found.summary(bad, all))
}

// summary is the last line.
func (c *checked) summary(bad []string, all bool) string {
	var hub []string
	skipped, clusters, silent := 0, "", false
	for _, f := range c.hub {
		switch {
		case f.ID == hubClusters && f.isBad():
			clusters = ": see " + hubClusters
		case f.isBad():
			hub = append(hub, f.ID)
		case f.ID == hubTunnels:
			silent = true
		case f.Skipped:
			skipped++
		}
	}
	text := "The hub is good"
	if silent {
		text = "The hub seems good, but no cluster answers"
	}
	if skipped > 0 {
		text += fmt.Sprintf(", as far as you may read it (%d not)", skipped)
	}
	if len(hub) > 0 {
		text = "The hub is not good: " + strings.Join(hub, ", ")
	}
	switch total := len(c.names); {
	case total == 0:
		return text + "; no cluster was asked" + clusters + "."
	case len(bad) > 0:
		text += fmt.Sprintf("; %d of %s not good: %s", len(bad), cli.Count(total, "cluster"), cli.OneLine(cli.SomeOf(bad)))
	default:
		text += "; so is each of " + cli.Count(total, "cluster")
	}
	if len(bad) < len(c.names) && !all {
		text += " (--all shows the good ones)"
	}
	return text + "."
}

// checkHub looks at what all clusters need. It gives the clusters to look at.
func checkHub(ctx context.Context, hub kubernetes.Interface, names []string) ([]finding, []v1alpha1.Cluster) {
	findings := []finding{checkAPI(ctx, hub)}
	if !findings[0].OK {
		return findings, nil
	}
	list := finding{ID: hubClusters}
	found, err := cli.ListClusters(ctx, hub, names)
	switch {
	case err != nil:
		list.Text = err.Error() // which says what to do
	case len(found) == 0:
		list.Text, list.Remedy = "there is no cluster that you may reach", "ask an administrator of the hub for ClusterRole cluster-proxy-user or cluster-proxy-viewer"
	case len(names) > 0:
		list.OK, list.Text = true, "you may reach the "+cli.Count(len(found), "cluster")+" that you name"
	default:
		list.OK, list.Text = true, "you may reach "+cli.Count(len(found), "cluster")
	}
	if errors.Is(err, cli.ErrNotServed) {
		return append(findings, list), nil // this is no hub: its parts would be missed for nothing
	}
	return append(append(findings, checkParts(ctx, hub)...), list), found
}
