package kubectlplugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

func viewsCommand(p *cli.Factory) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "views [VIEW...]",
		Short: "Show the views of many clusters at once, and which of their clusters do not answer",
		Long: `Show the FleetViews that you may see, how many clusters each has for the hub, and which of those
do not answer, since when and why. A view grants nothing: for you it has those of its clusters that you may
reach, which kubectl clusterproxy status lists. kubectl clusterproxy kubeconfig makes contexts for views.`,
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
		err = viewTables(p, found, output == "wide")
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
	if c := meta.FindStatusCondition(view.Status.Conditions, v1alpha1.ConditionTypeFleetViewValid); c != nil && c.Status == metav1.ConditionFalse {
		return cmp.Or(c.Message, c.Reason, "no reason is given")
	}
	return ""
}

// viewTables prints a table of views, and one of the clusters that do not answer.
func viewTables(p *cli.Factory, found []v1alpha1.FleetView, wide bool) error {
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
	return unreachableTable(p, found)
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

// ago is how long ago t was.
func ago(t *metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}
