package kubectlplugin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// addViews makes a context for each view, beside those of clusters. A user who reaches
// clusters but no views gets the former, and one line that says why.
func (p *plugin) addViews(ctx context.Context, hub kubernetes.Interface, to *contexts, fleet string) {
	found, err := views(ctx, hub, nil)
	none := "no contexts for views"
	if apierrors.IsForbidden(err) {
		// A user may have a right to this one by its name.
		if all, getErr := views(ctx, hub, []string{viewAll}); getErr == nil {
			found, none = all, fmt.Sprintf("no contexts for views but %q", viewAll)
		}
	}
	if err != nil {
		fmt.Fprintf(p.err, "%s: %s\n", none, oneLine(err.Error()))
	}
	for i := range found {
		p.addView(to, fleet, &found[i])
	}
}

func (p *plugin) addView(to *contexts, fleet string, view *v1alpha1.FleetView) {
	name := fleet
	if view.Name != viewAll {
		name += "-" + view.Name
	}
	err := fmt.Errorf("a cluster has the context %q", name)
	if to.added.Contexts[name] == nil {
		err = to.add(name, viewPath(view.Name))
	}
	if err != nil {
		fmt.Fprintf(p.err, "no context for view %q: %s; or choose another name with --fleet\n", view.Name, oneLine(err.Error()))
	}
}

// viewPath is where the hub serves a view.
func viewPath(view string) string {
	return "/apis/" + clusterproxy.GroupVersion.String() + "/fleetviews/" + view + "/" + clusterproxy.ProxySubresource
}
