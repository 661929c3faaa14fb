package request

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	reading "open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// requestInfo reads requests as the hub and the agents do.
var requestInfo = reading.Resolver

// New finds out what a request wants, and of which members.
func New(r *http.Request, view *fleet.View, members []fleet.Member) (*Request, error) {
	info, err := requestInfo.NewRequestInfo(parsable(r))
	if err != nil {
		return nil, fault.Refuse(http.StatusBadRequest, err.Error())
	}
	if !info.IsResourceRequest || isFormerVerb(r.URL.Path, info) {
		return nil, fault.Refuse(http.StatusNotFound, "a view has the resources of the Kubernetes API, discovery and OpenAPI: ask one cluster for anything else")
	}
	q := &Request{View: view, Info: info, Query: r.URL.Query(), Members: members, Everyone: clusterNames(members), Changes: changes(r, info)}
	if q.Path, err = newPath(r.URL, info); err != nil {
		return nil, err
	}
	q.cutNamespace()
	listed, err := q.listed()
	if err != nil {
		return nil, err
	}
	if !listed {
		if q.Unlisted, err = q.Find(view.UnlistedCluster); apierrors.IsNotFound(err) {
			// In other words than find's: they would tell the name of the cluster.
			err = fault.Refuse(http.StatusNotFound, fmt.Sprintf("view %q has resource %q of API group %q on no cluster that you may reach", view.Name, info.Resource, info.APIGroup))
		}
		if err == nil && q.inNamespace && !slices.Contains(q.terms[0].clusters, view.UnlistedCluster) {
			err = q.NoCluster()
		}
		return q, err
	}
	q.Everyone = clusterNames(q.having(members))
	q.Members = q.Narrow(members)
	if q.Collection() {
		return q, q.chooseBySelector()
	}
	q.Streams = isStream(r, info)
	if plain, cluster, ok := q.cutName(); ok {
		q.Path, q.Info.Name, q.qualified = q.Path.Named(plain), plain, true
		q.Choose(cluster)
	}
	return q, nil
}

// parsable is the request without its label selector, if that has a name of the view's in
// it: RequestInfo does not need it, and logs what it cannot parse.
func parsable(r *http.Request) *http.Request {
	query := r.URL.Query()
	if !strings.Contains(query.Get("labelSelector"), "@") {
		return r
	}
	query.Del("labelSelector")
	r = r.Clone(r.Context())
	r.URL.RawQuery = query.Encode()
	return r
}

func clusterNames(members []fleet.Member) []string {
	names := make([]string, 0, len(members))
	for _, m := range members {
		names = append(names, m.Name())
	}
	return names
}

// cutNamespace takes the cluster off a namespace in the path: kubectl lists what is in the
// namespace that it describes, and -n NAMESPACE@CLUSTER is a cluster for everything.
func (q *Request) cutNamespace() {
	if q.Info.Resource == "namespaces" {
		return // it is the object
	}
	plain, cluster, ok := CutLast(q.Info.Namespace) // a namespace has no @ of its own
	if !ok {
		return
	}
	q.Path, q.Info.Namespace, q.inNamespace = q.Path.within(plain), plain, true
	q.terms = append(q.terms, clusterTerm{[]string{cluster}, true})
}

// cutName takes the cluster off the name in the path. The name of what is behind a proxy may
// have a scheme and a port: https:NAME@CLUSTER:8443.
func (q *Request) cutName() (plain, cluster string, ok bool) {
	if plain, cluster, ok = q.cut(q.Info.Name); ok || q.Info.Subresource != "proxy" {
		return plain, cluster, ok
	}
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(q.Info.Name)
	if !ok {
		return "", "", false
	}
	if plain, cluster, ok = q.cut(name); !ok {
		return "", "", false
	}
	return utilnet.JoinSchemeNamePort(scheme, plain, port), cluster, true
}

// listed reports whether the view has the resource, and finds the rules by which it has it.
// It restricts a request for all namespaces to the one that the view has.
func (q *Request) listed() (bool, error) {
	if len(q.View.Resources) == 0 {
		return true, nil
	}
	namespace := q.Info.Namespace
	if q.Info.Resource == "namespaces" {
		if plain, _, ok := q.cut(namespace); ok {
			namespace = plain
		}
	}
	var others []fleet.ResourceRule // of other namespaces
	for _, rule := range q.View.Resources {
		switch {
		case !rule.Selects(q.Info.APIGroup, q.Info.Resource):
		case len(rule.Namespaces) == 0 || slices.Contains(rule.Namespaces, namespace):
			q.rules = append(q.rules, rule)
		default:
			others = append(others, rule)
		}
	}
	var namespaces []string
	for _, rule := range others {
		namespaces = append(namespaces, rule.Namespaces...)
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	all := namespace == "" && q.Collection()
	switch {
	case q.rules == nil && others == nil && q.View.UnlistedCluster != "":
		return false, nil
	case q.rules == nil && others == nil:
		return false, fault.Refuse(http.StatusNotFound, fmt.Sprintf("view %q does not have resource %q of API group %q", q.View.Name, q.Info.Resource, q.Info.APIGroup))
	case q.rules != nil && !(all && q.lacking(others)):
		return true, nil
	case q.rules == nil && all && len(namespaces) == 1:
		q.Path = q.Path.in(namespaces[0])
		q.Info.Namespace = namespaces[0]
		q.rules = others
		return true, nil
	}
	return false, fault.Refuse(http.StatusNotFound, fmt.Sprintf("view %q has resource %q in namespaces %s only%s: name one of them", q.View.Name, q.Info.Resource,
		strings.Join(namespaces, ", "), onSome[q.rules != nil]))
}

// onSome says that not all clusters are meant.
var onSome = map[bool]string{true: " on some of its clusters"}

// lacking reports whether a cluster of other rules is in none of those of the request: all
// namespaces would then be fewer than the view has.
func (q *Request) lacking(others []fleet.ResourceRule) bool {
	return slices.ContainsFunc(q.Members, func(m fleet.Member) bool {
		return !ruled(q.rules, m.Name()) && ruled(others, m.Name())
	})
}

// RefuseChanges returns the error of a request that a view without writes does not take.
func RefuseChanges(view *fleet.View, r *http.Request) error {
	if view.Writes != fleet.WritesNone {
		return nil
	}
	if info, err := requestInfo.NewRequestInfo(parsable(r)); err == nil && !changes(r, info) {
		return nil
	}
	return fault.Refuse(http.StatusMethodNotAllowed, fmt.Sprintf("view %q only reads (its spec.writes is None): ask the cluster itself, or another view", view.Name))
}

// IsResource reports whether a request is for a resource, by whatever path.
func IsResource(r *http.Request) bool {
	info, err := requestInfo.NewRequestInfo(parsable(r))
	return err != nil || info.IsResourceRequest
}
