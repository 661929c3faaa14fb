package scope

import (
	"net/http"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// Where Karmada's API is served.
var (
	KarmadaClustersPath = "/apis/" + karmadav1alpha1.ClusterGroupVersion.String() + "/" + karmadav1alpha1.Clusters + "/"
	karmadaProxyingPath = "/apis/" + karmadav1alpha1.SearchGroupVersion.String() + "/" + karmadav1alpha1.Proxying + "/" +
		karmadav1alpha1.ProxyingName + "/" + v1alpha1.ProxySubresource
)

// The views of Karmada's API. No FleetView can have these names.
const (
	RegistriesView = karmadav1alpha1.Proxying + "/" + karmadav1alpha1.ProxyingName
	EveryView      = karmadav1alpha1.Clusters + "/" + karmadav1alpha1.AllClusters
)

// Karmada is what Karmada's API is served with.
type Karmada struct {
	Registries registries
	// Store has the objects that ResourceRegistries are stored as.
	Store rest.Interface
	// ControlPlane is the cluster for what no registry selects; empty for none.
	ControlPlane string
}

// registries is what the hub knows about ResourceRegistries.
type registries interface {
	// Rules are those of all registries. The error means that they are not known.
	Rules() ([]clusters.RegistryRule, error)
}

// newKarmadaScope understands requests for clusters and views in Karmada's API. ok is false
// for others.
func newKarmadaScope(r *http.Request) (_ *Scope, ok bool, _ error) {
	clusters := karmadav1alpha1.ClusterGroupVersion
	if target, ok, err := route.ParseViewAt(karmadaProxyingPath, RegistriesView, r.RequestURI); ok {
		rs, err := newViewScope(r, target, clusters, err)
		if err == nil {
			rs.Info = OuterInfo(r, karmadav1alpha1.SearchGroupVersion, karmadav1alpha1.Proxying, karmadav1alpha1.ProxyingName, rs.Info.Verb)
		}
		return rs, true, err
	}
	for _, every := range []string{karmadav1alpha1.AllClusters, "%2A", "%2a"} {
		if target, ok, err := route.ParseViewAt(KarmadaClustersPath+every+"/"+v1alpha1.ProxySubresource, EveryView, r.RequestURI); ok {
			rs, err := newViewScope(r, target, clusters, err)
			if err == nil {
				rs.Info = OuterInfo(r, clusters, karmadav1alpha1.Clusters, karmadav1alpha1.AllClusters, rs.Info.Verb)
			}
			return rs, true, err
		}
	}
	if target, ok, err := route.ParseBelow(KarmadaClustersPath, v1alpha1.ProxySubresource, r.RequestURI); ok {
		rs, err := NewClusterScope(r, target, clusters, err)
		return rs, true, err
	}
	return nil, false, nil
}
