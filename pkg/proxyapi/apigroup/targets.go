package apigroup

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authz"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// maxTargets bounds an answer, which has some 15 MB then.
const maxTargets = 50_000

// Values of the parameter of.
const (
	ofAgents   = "agents"
	ofServices = "services"
)

// targetStorage lists what the caller's Prometheus may scrape of clusters by way of the hub, in
// the form of Prometheus' http_sd. Each target is a cluster's name, and its labels have the
// path: below which address the proxy API is, only the caller knows.
type targetStorage struct{ *ClusterAPI }

var _ rest.Connecter = &targetStorage{}

func (s *targetStorage) New() runtime.Object                               { return &v1alpha1.Cluster{} }
func (s *targetStorage) Destroy()                                          {}
func (s *targetStorage) ConnectMethods() []string                          { return []string{http.MethodGet} }
func (s *targetStorage) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// Connect answers for all clusters.
func (s *targetStorage) Connect(_ context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	if name != v1alpha1.AllClusters {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("targets are those of all clusters: ask for clusters/%s/%s, with a labelSelector for some", v1alpha1.AllClusters, v1alpha1.TargetsSubresource))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found, err := s.targets(r.Context(), r.URL.Query())
		if err != nil {
			responder.Error(err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(found) // an error is the client's, who is gone
	}), nil
}

// targetGroup is one of http_sd's answer.
type targetGroup struct {
	Targets []string     `json:"targets"`
	Labels  targetLabels `json:"labels"`
}

type targetLabels struct {
	Path      string `json:"__metrics_path__"`
	Namespace string `json:"__meta_clusterproxy_namespace,omitempty"`
	Service   string `json:"__meta_clusterproxy_service,omitempty"`
	Port      string `json:"__meta_clusterproxy_port,omitempty"`
	Instance  string `json:"instance"`
	Cluster   string `json:"managed_cluster"`
}

// targets are those of clusters for which the caller has the rights to scrape them, by cluster.
func (a *ClusterAPI) targets(ctx context.Context, query url.Values) ([]targetGroup, error) {
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	of := query.Get("of")
	if of != "" && of != ofAgents && of != ofServices {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("of=%.20q: targets are of %s, of %s, or of both without it", of, ofAgents, ofServices))
	}
	options := &internalversion.ListOptions{LabelSelector: selector}
	found := []targetGroup{}
	if of != ofServices {
		clusters, err := a.reachable(ctx, options, authz.AgentMetrics)
		if err != nil {
			return nil, err
		}
		for i := range clusters {
			found = append(found, targetOf(clusters[i].Name, v1alpha1.MetricsSubresource, agentapi.ExposedService{}))
		}
	}
	if exposed := scrapable(a.Exposed()); of != ofAgents && len(exposed) > 0 {
		clusters, err := a.reachable(ctx, options, mayGet, authz.Streams)
		if err != nil {
			return nil, err
		}
		for i := range clusters {
			if found = a.appendServices(found, clusters[i].Name, exposed); len(found) > maxTargets {
				break
			}
		}
	}
	if len(found) > maxTargets {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("there are more than %d targets: ask for some of the clusters by labelSelector, or for those of=%s", maxTargets, ofAgents))
	}
	return found, nil
}

// scrapable are the exposed Services that have one URL: neither of any port, nor of any protocol.
func scrapable(all agentapi.ExposedServices) (some agentapi.ExposedServices) {
	for _, entry := range all {
		if entry.Port != "" && (entry.Protocol == "http" || entry.Protocol == "https") {
			some = append(some, entry)
		}
	}
	return some
}

// appendServices adds those that a cluster exposes.
func (a *ClusterAPI) appendServices(found []targetGroup, cluster string, exposed agentapi.ExposedServices) []targetGroup {
	known := map[string]bool{} // entries may differ in other things than the Service
	for _, entry := range exposed.For(cluster, a.Clusters.ClusterSet(cluster)) {
		path := fmt.Sprintf("%s/api/v1/namespaces/%s/services/%s:%s:%s/proxy-service/metrics", v1alpha1.ProxySubresource, entry.Namespace, entry.Protocol, entry.Service, entry.Port)
		if !known[path] {
			known[path] = true
			found = append(found, targetOf(cluster, path, entry))
		}
	}
	return found
}

// targetOf is what is at a path below a cluster: its agent, or an exposed Service.
func targetOf(cluster, path string, of agentapi.ExposedService) targetGroup {
	instance := cluster
	if of.Service != "" {
		instance += "/" + of.Namespace + "/" + of.Service + ":" + of.Port
	}
	return targetGroup{Targets: []string{cluster}, Labels: targetLabels{
		Path: scope.ClustersPath + cluster + "/" + path, Namespace: of.Namespace, Service: of.Service, Port: of.Port, Instance: instance, Cluster: cluster,
	}}
}
