package kubectlplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// viewAll is the view of all clusters, which the chart makes.
const viewAll = "all"

// viewsPath is where the hub keeps FleetViews.
var viewsPath = "/apis/" + v1alpha1.GroupVersion.String() + "/fleetviews"

// errNoViews says that the hub does not know FleetViews at all.
var errNoViews = errors.New("the hub does not know FleetViews: the CRD fleetviews." + v1alpha1.GroupVersion.Group +
	" is not installed; helm upgrade installs it, and its notes say what to do if it may not")

func (p *plugin) viewsCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "views [VIEW...]",
		Short: "Show the views of many clusters at once, and which of their clusters do not answer",
		Long: `Show the FleetViews that you may see, how many clusters each has for the hub, and which of those
do not answer, since when and why. A view grants nothing: for you it has those of its clusters that you may
reach, which kubectl clusterproxy status lists. kubectl clusterproxy kubeconfig makes contexts for views.`,
		Example:           "  kubectl clusterproxy views\n  kubectl clusterproxy views all -o wide",
		ValidArgsFunction: p.completeViews,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.views(cmd.Context(), args, output) },
	}
	outputFlag(cmd, &output, "name", "wide")
	return cmd
}

func (p *plugin) views(ctx context.Context, names []string, output string) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	progress := p.progress()
	progress.doing("listing views")
	found, err := views(ctx, hub, names)
	progress.done()
	if apierrors.IsForbidden(err) && len(names) == 0 {
		return fmt.Errorf("%w; name one that you may get, for example: kubectl clusterproxy views %s", err, viewAll)
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
	printed, err := p.print(output, v1alpha1.FleetViewList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "FleetViewList"}, Items: append([]v1alpha1.FleetView{}, found...)})
	if err == nil && !printed {
		err = p.viewTables(found, output == "wide")
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(view v1alpha1.FleetView) bool { return view.Status.UnreachableCount > 0 || invalid(&view) != "" }) {
		return errNotGood
	}
	return nil
}

// views returns the FleetViews that the user may see, or the named ones of them.
func views(ctx context.Context, hub kubernetes.Interface, names []string) ([]v1alpha1.FleetView, error) {
	if len(names) == 0 {
		var list v1alpha1.FleetViewList
		if err := get(ctx, hub, viewsPath, &list); apierrors.IsNotFound(err) {
			return nil, errNoViews
		} else if err != nil {
			return nil, fmt.Errorf("listing views: %w", err)
		}
		return list.Items, nil
	}
	var found []v1alpha1.FleetView
	for _, name := range names {
		if wrong := path.IsValidPathSegmentName(name); len(wrong) > 0 {
			return nil, fmt.Errorf("%q cannot be the name of a view: it %s", name, wrong[0])
		}
		var view v1alpha1.FleetView
		if err := get(ctx, hub, viewsPath+"/"+name, &view); isMissing(err, name) {
			return nil, fmt.Errorf("no view %q; see: kubectl clusterproxy views", name)
		} else if apierrors.IsNotFound(err) {
			return nil, errNoViews
		} else if err != nil {
			return nil, fmt.Errorf("getting view %q: %w", name, err)
		}
		found = append(found, view)
	}
	return found, nil
}

// isMissing tells an object that is not there from a kind that the hub does not know.
// The message about the latter names no object.
func isMissing(err error, name string) bool {
	var status *apierrors.StatusError
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.ErrStatus.Details != nil && status.ErrStatus.Details.Name == name
}

// invalid is what the hub says is wrong with a view.
func invalid(view *v1alpha1.FleetView) string {
	if c := meta.FindStatusCondition(view.Status.Conditions, v1alpha1.ConditionTypeFleetViewValid); c != nil && c.Status == metav1.ConditionFalse {
		return cmp.Or(c.Message, c.Reason, "no reason is given")
	}
	return ""
}

// viewTables prints a table of views, and one of the clusters that do not answer.
func (p *plugin) viewTables(found []v1alpha1.FleetView, wide bool) error {
	if len(found) == 0 {
		fmt.Fprintln(p.err, "There is no view that you may see.")
		return nil
	}
	t := newTable("Name", "Clusters", "Reachable", "Names")
	t.addWide("When Unreachable", "Cluster Timeout", "Informer Timeout", "Age")
	for i := range found {
		view := &found[i]
		clusters, reachable := "<unknown>", "<unknown>"
		if view.Status.ObservedGeneration != 0 && view.Status.ObservedGeneration >= view.Generation {
			clusters, reachable = fmt.Sprint(view.Status.Clusters), fmt.Sprint(view.Status.Reachable)
		}
		t.add(view.Name, clusters, reachable, string(view.Spec.Names), string(view.Spec.WhenUnreachable),
			fmt.Sprintf("%ds", view.Spec.ClusterTimeoutSeconds), fmt.Sprintf("%ds", view.Spec.InformerTimeoutSeconds), ago(&view.CreationTimestamp))
	}
	if err := p.printTable(t, wide); err != nil {
		return err
	}
	return p.unreachableTable(found)
}

// unreachableTable prints the clusters of all views that do not answer, each once.
func (p *plugin) unreachableTable(found []v1alpha1.FleetView) error {
	in := map[string][]string{} // names of views
	clusters := map[string]v1alpha1.UnreachableCluster{}
	for i := range found {
		view, status := &found[i], &found[i].Status
		for _, cluster := range status.Unreachable {
			clusters[cluster.Name], in[cluster.Name] = cluster, append(in[cluster.Name], view.Name)
		}
		if more := int(status.UnreachableCount) - len(status.Unreachable); more > 0 {
			fmt.Fprintf(p.err, "view %s has %s without an answer; see: kubectl clusterproxy status\n", oneLine(view.Name), count(more, "more cluster"))
		}
		if wrong := invalid(view); wrong != "" {
			fmt.Fprintf(p.err, "view %s is not valid: %s\n", oneLine(view.Name), oneLine(wrong))
		}
	}
	if len(clusters) == 0 {
		return nil
	}
	fmt.Fprintln(p.out)
	t := newTable("Not Answering", "Since", "Reason", "Views")
	for _, name := range slices.Sorted(maps.Keys(in)) {
		t.add(name, ago(clusters[name].Since), clusters[name].Reason, strings.Join(in[name], ","))
	}
	return p.printTable(t, false)
}

// ago is how long ago t was.
func ago(t *metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}
