package scope

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// NewClusterScope understands a request for a cluster, the rights to which are of a group.
func NewClusterScope(r *http.Request, target route.Target, group schema.GroupVersion, err error) (*Scope, error) {
	rs := &Scope{Kind: Cluster, Target: target, Group: group, Host: r.Host}
	if err == nil {
		err = rs.look(r)
	}
	if err == nil {
		rs.Info = OuterInfo(r, group, v1alpha1.Resource, target.Cluster, verbFor(r.Method, rs.Inner))
	}
	return rs, err
}

// newAgentMetricsScope understands a request for the metrics of a cluster's agent.
func newAgentMetricsScope(r *http.Request, target route.Target, group schema.GroupVersion, err error) (*Scope, error) {
	const path = "/metrics"
	rs := &Scope{Kind: Cluster, Target: route.Target{Cluster: target.Cluster, Path: path}, Group: group, Host: r.Host, AgentMetrics: true}
	switch {
	case err != nil:
	case target.Path != "/" || target.ForService():
		err = status.New(http.StatusNotFound, fmt.Sprintf("the metrics of a cluster's agent are at %s<cluster>/%s, and nothing is below", ClustersPath, v1alpha1.MetricsSubresource))
	case r.Method != http.MethodGet || httprelay.IsUpgrade(r.Header):
		err = status.New(http.StatusMethodNotAllowed, "the metrics of a cluster's agent can only be read: use GET without an upgrade")
	default:
		rs.Inner = &request.RequestInfo{Path: path, Verb: "get"}
		rs.Info = OuterInfo(r, group, v1alpha1.Resource, target.Cluster, "get")
		rs.Info.Subresource = v1alpha1.MetricsSubresource
		rs.Info.Parts = []string{v1alpha1.Resource, target.Cluster, v1alpha1.MetricsSubresource}
	}
	return rs, err
}

// newViewScope understands a request for a view of clusters, the rights to which are of a
// group.
func newViewScope(r *http.Request, target route.Target, group schema.GroupVersion, err error) (*Scope, error) {
	rs := &Scope{Kind: View, Target: target, Group: group, Host: r.Host}
	if err == nil {
		err = rs.look(r)
	}
	if err == nil {
		rs.Info = OuterInfo(r, group, ViewsResource, target.View, verbFor(r.Method, rs.Inner))
	}
	return rs, err
}

// newSearchScope understands a search in a view. It shows rows of many objects, so it needs the right to list.
func newSearchScope(r *http.Request, target route.Target, group schema.GroupVersion, err error) (*Scope, error) {
	rs := &Scope{Kind: View, Target: target, Group: group, Host: r.Host, Search: true}
	switch {
	case err != nil:
	case target.Path != "/" || target.ForService():
		err = status.New(http.StatusNotFound, fmt.Sprintf("a view is searched at %s<view>/%s, and nothing is below", ViewsPath, v1alpha1.SearchSubresource))
	case r.Method != http.MethodGet || httprelay.IsUpgrade(r.Header):
		err = status.New(http.StatusMethodNotAllowed, "a search only reads: use GET without an upgrade")
	default:
		rs.Inner = &request.RequestInfo{Path: "/" + v1alpha1.SearchSubresource, Verb: "list"}
		rs.Info = OuterInfo(r, group, ViewsResource, target.View, "list")
		rs.Info.Subresource = v1alpha1.SearchSubresource
		rs.Info.Parts = []string{ViewsResource, target.View, v1alpha1.SearchSubresource}
	}
	return rs, err
}

// look finds out what a request is that is for a cluster or a view.
func (rs *Scope) look(r *http.Request) error {
	raw, _, _ := strings.Cut(r.RequestURI, "?")
	rs.Prefix = strings.TrimSuffix(raw, rs.Target.Path)
	inner, err := innerInfo(r, rs.Target)
	if err != nil {
		return status.New(http.StatusBadRequest, err.Error())
	}
	rs.Inner = inner
	rs.Leaves = rs.Target.ForService() || apirequest.LeavesAPI(r, inner)
	rs.Long = rs.Leaves || inner.Verb == "watch" || inner.Subresource == "log"
	rs.DryRun = !rs.Leaves && apirequest.IsDryRun(inner, rs.Target.Query, r.ContentLength != 0)
	return nil
}

func innerInfo(r *http.Request, target route.Target) (*request.RequestInfo, error) {
	if target.ForService() {
		return &request.RequestInfo{Path: target.Decoded(), Verb: strings.ToLower(r.Method)}, nil
	}
	return apirequest.Resolver.NewRequestInfo(&http.Request{Method: r.Method,
		URL: &url.URL{Path: target.Decoded(), RawQuery: strings.TrimPrefix(target.Query, "?")}})
}

// OuterInfo is a request for the subresource proxy of a cluster or a view.
func OuterInfo(r *http.Request, group schema.GroupVersion, resource, name, verb string) *request.RequestInfo {
	return &request.RequestInfo{
		IsResourceRequest: true, Path: r.URL.Path, Verb: verb, APIPrefix: "apis",
		APIGroup: group.Group, APIVersion: group.Version,
		Resource: resource, Subresource: v1alpha1.ProxySubresource, Name: name,
		Parts: []string{resource, name, v1alpha1.ProxySubresource},
	}
}

// verbFor is the verb of the inner request. Requests that are not for resources
// get the verb that their method has for resources, so that one rule serves. A self
// review reads: k9s sends one before each list. A method that Kubernetes does not know is
// in capitals, so that none has the name of a verb: LIST is no list.
func verbFor(method string, inner *request.RequestInfo) string {
	if apirequest.IsSelfReview(inner) {
		return "get"
	}
	if inner.IsResourceRequest && inner.Verb != "" {
		return inner.Verb
	}
	switch method {
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect:
		return strings.ToLower(method)
	}
	return strings.ToUpper(method)
}

// ViewsResource has the subresource proxy in the aggregated API. FleetViews themselves
// are in another group.
const ViewsResource = "fleetviews"

// groupPath, clustersPath and viewsPath are where the aggregated API is served.
var (
	GroupPath    = "/apis/" + v1alpha1.GroupVersion.Group + "/" + v1alpha1.GroupVersion.Version
	ClustersPath = GroupPath + "/" + v1alpha1.Resource + "/"
	ViewsPath    = GroupPath + "/" + ViewsResource + "/"
)
