package kubectlplugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

func viewsCommand(p *cli.Factory) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "views [VIEW...]",
		Short: "Show the views of many clusters at once, and which of their clusters do not answer",
		Long: `Show the FleetViews that you may see, how many clusters each has for the hub, and which of those
do not answer, since when and why. A view grants nothing: for you it has those of its clusters that you may
reach, which kubectl clusterproxy status lists. kubectl clusterproxy kubeconfig makes contexts for views.

For views that read from the fleet index, a second table says how many objects the index has that you may list, how many
clusters are away, and how long ago the first of those was last heard. The index hears all others within seconds.`,
		Example:           "  kubectl clusterproxy views\n  kubectl clusterproxy views all -o wide",
		ValidArgsFunction: p.CompleteViews,
		RunE:              func(cmd *cobra.Command, args []string) error { return showViews(cmd.Context(), p, args, output) },
	}
	cli.OutputFlag(cmd, &output, "name", "wide")
	return cmd
}

func showViews(ctx context.Context, p *cli.Factory, names []string, output string) error {
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	progress := p.StartProgress()
	progress.Doing("listing views")
	found, err := cli.ListViews(ctx, hub, names)
	progress.Done()
	if apierrors.IsForbidden(err) && len(names) == 0 {
		return fmt.Errorf("%w; name one that you may get, for example: kubectl clusterproxy views %s", err, cli.ViewAll)
	}
	if err != nil {
		return err
	}
	for i := range found {
		found[i].ManagedFields = nil // kubectl does not show them either
	}
	for i := range found {
		found[i].TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "FleetView"}
	}
	printed, err := p.Print(output, v1alpha1.FleetViewList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "FleetViewList"}, Items: append([]v1alpha1.FleetView{}, found...)})
	if err == nil && !printed {
		err = viewTables(ctx, p, hub, found, output == "wide")
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(view v1alpha1.FleetView) bool { return view.Status.UnreachableCount > 0 || invalid(&view) != "" }) {
		return cli.ErrNotGood
	}
	return nil
}

// invalid is what the hub says is wrong with a view.
func invalid(view *v1alpha1.FleetView) string {
	return whyFalse(view.Status.Conditions, v1alpha1.ConditionTypeFleetViewValid)
}

// whyFalse is what a condition says that is False; nothing of another one.
func whyFalse(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
		return cmp.Or(c.Message, c.Reason, "no reason is given")
	}
	return ""
}

// viewTables prints a table of views, one of what the fleet index has, and one of the clusters that do not answer.
func viewTables(ctx context.Context, p *cli.Factory, hub kubernetes.Interface, found []v1alpha1.FleetView, wide bool) error {
	if len(found) == 0 {
		fmt.Fprintln(p.Err, "There is no view that you may see.")
		return nil
	}
	t := cli.NewTable("Name", "Clusters", "Reachable", "Names", "Reads")
	t.AddWide("When Unreachable", "Cluster Timeout", "Informer Timeout", "Age")
	for i := range found {
		view := &found[i]
		clusters, reachable := "<unknown>", "<unknown>"
		if view.Status.ObservedGeneration != 0 && view.Status.ObservedGeneration >= view.Generation {
			clusters, reachable = fmt.Sprint(view.Status.Clusters), fmt.Sprint(view.Status.Reachable)
		}
		t.Add(view.Name, clusters, reachable, string(view.Spec.Names), string(cmp.Or(view.Spec.Reads, v1alpha1.ReadsLive)), string(view.Spec.WhenUnreachable),
			fmt.Sprintf("%ds", view.Spec.ClusterTimeoutSeconds), fmt.Sprintf("%ds", view.Spec.InformerTimeoutSeconds), ago(&view.CreationTimestamp))
	}
	if err := p.PrintTable(t, wide); err != nil {
		return err
	}
	if err := indexedTable(ctx, p, hub, found); err != nil {
		return err
	}
	return unreachableTable(p, found)
}

// indexedTable prints what the fleet index has for the views that read from it, of the objects that the user may list.
func indexedTable(ctx context.Context, p *cli.Factory, hub kubernetes.Interface, found []v1alpha1.FleetView) error {
	progress := p.StartProgress()
	defer progress.Done()
	t, isEmpty := cli.NewTable("Indexed View", "Objects", "Away", "Oldest"), true
	for i := range found {
		view := &found[i]
		if view.Spec.Reads != v1alpha1.ReadsIndexed {
			continue
		}
		progress.Doing("counting objects of view " + view.Name)
		isEmpty = false
		s, answer := search{view: view.Name}, counted{}
		if err := s.ask(ctx, hub, url.Values{"countBy": {string(query.Cluster)}}, &answer); err != nil {
			fmt.Fprintln(p.Err, cli.OneLine(err.Error()))
			t.Add(view.Name, "<unknown>", "<unknown>", "<unknown>")
			continue
		}
		away, oldest := awayOf(&answer.Basis)
		t.Add(view.Name, strconv.FormatInt(answer.Total, 10), away, oldest)
		if less := len(answer.Incomplete) + len(answer.Undecided) + len(answer.Unindexed); less > 0 {
			fmt.Fprintf(p.Err, "view %s has %s of which the index lacks objects, or does not know what you may see: kubectl clusterproxy search --view=%[1]s --count-by=cluster\n", cli.OneLine(view.Name), cli.Count(less, "cluster"))
		}
	}
	progress.Done()
	if isEmpty {
		return nil
	}
	fmt.Fprintln(p.Out)
	return p.PrintTable(t, false)
}

// awayOf says how many clusters are away, and how long ago the first of them was last heard, as far as the answer names them.
func awayOf(basis *indexapi.Basis) (away, oldest string) {
	if len(basis.Away) == 0 {
		return "0", ""
	}
	first := metav1.NewTime(slices.MinFunc(slices.Collect(maps.Values(basis.Away)), time.Time.Compare))
	more := ""
	if basis.More > 0 && len(basis.Away) == indexapi.MaxNamed {
		more = "+"
	}
	return strconv.Itoa(len(basis.Away)) + more, ago(&first) + more
}

// unreachableTable prints the clusters of all views that do not answer, each once.
func unreachableTable(p *cli.Factory, found []v1alpha1.FleetView) error {
	in := map[string][]string{} // names of views
	clusters := map[string]v1alpha1.UnreachableCluster{}
	for i := range found {
		view, status := &found[i], &found[i].Status
		for _, cluster := range status.Unreachable {
			clusters[cluster.Name], in[cluster.Name] = cluster, append(in[cluster.Name], view.Name)
		}
		if more := int(status.UnreachableCount) - len(status.Unreachable); more > 0 {
			fmt.Fprintf(p.Err, "view %s has %s without an answer; see: kubectl clusterproxy status\n", cli.OneLine(view.Name), cli.Count(more, "more cluster"))
		}
		if wrong := invalid(view); wrong != "" {
			fmt.Fprintf(p.Err, "view %s is not valid: %s\n", cli.OneLine(view.Name), cli.OneLine(wrong))
		}
	}
	if len(clusters) == 0 {
		return nil
	}
	fmt.Fprintln(p.Out)
	t := cli.NewTable("Not Answering", "Since", "Reason", "Views")
	for _, name := range slices.Sorted(maps.Keys(in)) {
		t.Add(name, ago(clusters[name].Since), clusters[name].Reason, strings.Join(in[name], ","))
	}
	return p.PrintTable(t, false)
}
