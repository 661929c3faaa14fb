package cli

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/client-go/kubernetes"
	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// ViewAll is the view of all clusters, which the chart makes.
const ViewAll = "all"

// ViewsPath is where the hub keeps FleetViews.
var ViewsPath = "/apis/" + v1alpha1.GroupVersion.String() + "/fleetviews"

// errNoViews says that the hub does not know FleetViews at all.
var errNoViews = errors.New("the hub does not know FleetViews: the CRD fleetviews." + v1alpha1.GroupVersion.Group +
	" is not installed; helm upgrade installs it, and its notes say what to do if it may not")

// ListViews returns the FleetViews that the user may see, or the named ones of them.
func ListViews(ctx context.Context, hub kubernetes.Interface, names []string) ([]v1alpha1.FleetView, error) {
	if len(names) == 0 {
		var list v1alpha1.FleetViewList
		if err := Get(ctx, hub, ViewsPath, &list); apierrors.IsNotFound(err) {
			return nil, errNoViews
		} else if err != nil {
			return nil, fmt.Errorf("listing views: %w", err)
		}
		return list.Items, nil
	}
	var found []v1alpha1.FleetView
	for _, name := range names {
		if wrong := content.IsPathSegmentName(name); len(wrong) > 0 {
			return nil, fmt.Errorf("%q cannot be the name of a view: it %s", name, wrong[0])
		}
		var view v1alpha1.FleetView
		if err := Get(ctx, hub, ViewsPath+"/"+name, &view); IsMissing(err, name) {
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

// ViewPath is where the hub serves a view.
func ViewPath(view string) string {
	return "/apis/" + clusterproxy.GroupVersion.String() + "/fleetviews/" + view + "/" + clusterproxy.ProxySubresource
}
