package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
)

// checkedAtOnce is how many clusters are asked at the same time.
const checkedAtOnce = 16

// checkAgain is how long --wait waits before it checks again. Tests change it.
var checkAgain = 5 * time.Second

// finding is the outcome of one check. IDs do not change between releases.
type finding struct {
	ID      string `json:"id"`
	Cluster string `json:"cluster,omitempty"`
	OK      bool   `json:"ok"`
	// Text says what was found, and Remedy what to do about it if it is bad.
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
	// Optional checks do not fail the command.
	Optional bool `json:"optional,omitempty"`
	// Skipped says that it was not looked at, and Text why.
	Skipped bool `json:"skipped,omitempty"`

	hop hop
}

// isBad reports whether a finding fails the command.
func (f finding) isBad() bool { return !f.OK && !f.Optional && !f.Skipped }

// unread is a finding about something that could not be read.
func (f finding) unread(what string, err error) finding {
	f.Text = fmt.Sprintf("%s cannot be read: %v", what, err)
	f.Skipped = apierrors.IsForbidden(err)
	f.Optional = true
	return f
}

// checkOptions are the flags of check.
type checkOptions struct {
	output   string
	pre, all bool
	wait     time.Duration
}

func (p *plugin) checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [CLUSTER...]",
		Short: "Find out why a cluster cannot be reached: the hub's parts, the cluster, its tunnel",
		Long: `Find out why a cluster cannot be reached. First the hub: its API, the APIService, the configuration, certificates, replicas and versions, as far as
you may read them. Then all clusters at the same time, or those that are named: of one that does not answer, whether the cluster reports to the hub and
has the addon, or whether it is the tunnel alone.`,
		Example:           "  kubectl clusterproxy check\n  kubectl clusterproxy check cluster1 --wait=5m\n  kubectl clusterproxy check --pre",
		ValidArgsFunction: p.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.pre {
				return p.checkBefore(cmd.Context(), o.output)
			}
			return p.check(cmd.Context(), args, o)
		},
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().BoolVar(&o.pre, "pre", false, "find out before an upgrade, from OCM's own cluster-proxy too, what will not go on as it is")
	cmd.Flags().BoolVar(&o.all, "all", false, "show what was found of clusters that are good, too")
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "check again until everything is good, for this long at most")
	return cmd
}

func (p *plugin) checkBefore(ctx context.Context, output string) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	progress := p.progress()
	progress.doing("reading what is stored on the hub")
	findings := precheck(ctx, hub)
	progress.done()
	if printed, err := p.print(output, listOf("FindingList", findings)); err != nil {
		return err
	} else if !printed {
		for _, f := range findings {
			p.printFinding(f)
		}
	}
	return goodOf(findings)
}

func (p *plugin) check(ctx context.Context, names []string, o checkOptions) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	progress := p.progress()
	found := checkAll(ctx, hub, names, progress.doing)
	for until := time.Now().Add(o.wait); goodOf(found.all()) != nil && time.Now().Before(until) && ctx.Err() == nil; {
		progress.doing("waiting until everything is good")
		select {
		case <-ctx.Done():
		case <-time.After(checkAgain):
			found = checkAll(ctx, hub, names, progress.doing)
		}
	}
	progress.done()
	if err := ctx.Err(); err != nil {
		return err
	}
	if printed, err := p.print(o.output, listOf("FindingList", found.all())); err != nil {
		return err
	} else if !printed {
		p.printChecked(found, o.all || len(names) > 0)
	}
	return goodOf(found.all())
}

// goodOf is errNotGood if one of the findings is bad.
func goodOf(findings []finding) error {
	for _, f := range findings {
		if f.isBad() {
			return errNotGood
		}
	}
	return nil
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
	doing("asking " + count(len(found), "cluster"))
	var group errgroup.Group
	group.SetLimit(checkedAtOnce)
	for i, cluster := range found {
		c.names = append(c.names, cluster.Name)
		group.Go(func() error {
			c.clusters[i] = checkCluster(ctx, hub, cluster)
			return nil
		})
	}
	_ = group.Wait() // what goes wrong is a finding
	return c
}

// printFinding writes a finding by itself.
func (p *plugin) printFinding(f finding) {
	where := "hub"
	if f.Cluster != "" {
		where = f.Cluster
	}
	f.Text = where + ": " + f.Text
	p.printBelow("", f)
}

// printBelow writes a finding below a heading.
func (p *plugin) printBelow(indent string, f finding) {
	mark := "√"
	switch {
	case f.Skipped:
		mark = "-"
	case !f.OK && f.Optional:
		mark = "‼"
	case !f.OK:
		mark = "×"
	}
	fmt.Fprintf(p.out, "%s%s %-18s %s\n", indent, mark, f.ID, oneLine(f.Text))
	if !f.OK && f.Remedy != "" {
		fmt.Fprintf(p.out, "%s  %-18s → %s\n", indent, "", oneLine(f.Remedy))
	}
}

// printChecked writes what was found, the clusters that are not good whole, and the others
// too if all are wanted.
func (p *plugin) printChecked(found *checked, all bool) {
	fmt.Fprintln(p.out, "hub")
	for _, f := range found.hub {
		p.printBelow("", f)
	}
	var bad []string
	for i, name := range found.names {
		if goodOf(found.clusters[i]) != nil {
			bad = append(bad, name)
		}
	}
	if total := len(found.names); total > 0 {
		fmt.Fprintf(p.out, "clusters: %d of %d good\n", total-len(bad), total)
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
		fmt.Fprintf(p.out, "%s %s: %s\n", mark, oneLine(name), verdict)
		for _, f := range found.clusters[i] {
			p.printBelow("  ", f)
		}
	}
	fmt.Fprintln(p.out, found.summary(bad, all))
}

// summary is the last line.
func (c *checked) summary(bad []string, all bool) string {
	var hub []string
	skipped, clusters := 0, ""
	for _, f := range c.hub {
		switch {
		case f.ID == hubClusters && f.isBad():
			clusters = ": see " + hubClusters
		case f.isBad():
			hub = append(hub, f.ID)
		case f.Skipped:
			skipped++
		}
	}
	text := "The hub is good"
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
		text += fmt.Sprintf("; %d of %s not good: %s", len(bad), count(total, "cluster"), oneLine(someOf(bad)))
	default:
		text += "; so is each of " + count(total, "cluster")
	}
	if len(bad) < len(c.names) && !all {
		text += " (--all shows the good ones)"
	}
	return text + "."
}

const (
	hubAPI = "hub-api"
	// hubClusters is the finding that says which clusters there are for the user: it is not about
	// the hub's parts.
	hubClusters = "hub-clusters"
)

// checkHub looks at what all clusters need. It gives the clusters to look at.
func checkHub(ctx context.Context, hub kubernetes.Interface, names []string) ([]finding, []v1alpha1.Cluster) {
	findings := []finding{checkAPI(ctx, hub)}
	if !findings[0].OK {
		return findings, nil
	}
	list := finding{ID: hubClusters}
	found, err := clusters(ctx, hub, names)
	switch {
	case err != nil:
		list.Text = err.Error() // which says what to do
	case len(found) == 0:
		list.Text, list.Remedy = "there is no cluster that you may reach", "ask an administrator of the hub for ClusterRole cluster-proxy-user or cluster-proxy-viewer"
	case len(names) > 0:
		list.OK, list.Text = true, "you may reach the "+count(len(found), "cluster")+" that you name"
	default:
		list.OK, list.Text = true, "you may reach "+count(len(found), "cluster")
	}
	if errors.Is(err, errNotServed) {
		return append(findings, list), nil // this is no hub: its parts would be missed for nothing
	}
	return append(append(findings, checkParts(ctx, hub)...), list), found
}
