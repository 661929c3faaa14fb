package proxyapi

import (
	"net/http"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// Where Karmada's API is served.
var (
	karmadaClustersPath = "/apis/" + karmadav1alpha1.ClusterGroupVersion.String() + "/" + karmadav1alpha1.Clusters + "/"
	karmadaProxyingPath = "/apis/" + karmadav1alpha1.SearchGroupVersion.String() + "/" + karmadav1alpha1.Proxying + "/" +
		karmadav1alpha1.ProxyingName + "/" + v1alpha1.ProxySubresource
)

// The views of Karmada's API. No FleetView can have these names.
const (
	registriesView = karmadav1alpha1.Proxying + "/" + karmadav1alpha1.ProxyingName
	everyView      = karmadav1alpha1.Clusters + "/" + karmadav1alpha1.AllClusters
)

// karmada is what Karmada's API is served with.
type karmada struct {
	registries registries
	// store has the objects that ResourceRegistries are stored as.
	store rest.Interface
	// controlPlane is the cluster for what no registry selects; empty for none.
	controlPlane string
}

// registries is what the hub knows about ResourceRegistries.
type registries interface {
	// Rules are those of all registries. The error means that they are not known.
	Rules() ([]hubaccess.RegistryRule, error)
}

// newKarmadaScope understands requests for clusters and views in Karmada's API. ok is false
// for others.
func newKarmadaScope(r *http.Request) (_ *requestScope, ok bool, _ error) {
	clusters := karmadav1alpha1.ClusterGroupVersion
	if target, ok, err := route.ParseViewAt(karmadaProxyingPath, registriesView, r.RequestURI); ok {
		scope, err := newViewScope(r, target, clusters, err)
		if err == nil {
			scope.info = outerInfo(r, karmadav1alpha1.SearchGroupVersion, karmadav1alpha1.Proxying, karmadav1alpha1.ProxyingName, scope.info.Verb)
		}
		return scope, true, err
	}
	for _, every := range []string{karmadav1alpha1.AllClusters, "%2A", "%2a"} {
		if target, ok, err := route.ParseViewAt(karmadaClustersPath+every+"/"+v1alpha1.ProxySubresource, everyView, r.RequestURI); ok {
			scope, err := newViewScope(r, target, clusters, err)
			if err == nil {
				scope.info = outerInfo(r, clusters, karmadav1alpha1.Clusters, karmadav1alpha1.AllClusters, scope.info.Verb)
			}
			return scope, true, err
		}
	}
	if target, ok, err := route.ParseBelow(karmadaClustersPath, v1alpha1.ProxySubresource, r.RequestURI); ok {
		scope, err := newClusterScope(r, target, clusters, err)
		return scope, true, err
	}
	return nil, false, nil
}

// isKarmadas reports whether a request is for a view of Karmada's API.
func (scope *requestScope) isKarmadas() bool {
	return scope.kind == viewScope && scope.group == karmadav1alpha1.ClusterGroupVersion
}

// addKarmada adds what Karmada's API is served with.
func (p *parts) addKarmada(hub *rest.Config, clusters *hubaccess.Clusters, controlPlane string) error {
	watched, err := hubaccess.NewRegistries(hub, clusters)
	if err != nil {
		return err
	}
	store, err := newStore(hub)
	if err != nil {
		return err
	}
	p.karmada = &karmada{registries: watched, store: store, controlPlane: controlPlane}
	p.background = append(p.background, watched.Run)
	return nil
}
