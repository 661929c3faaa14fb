package fleetview

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	reading "open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// request is what one request of a view wants.
type request struct {
	view *fleet.View
	info *apirequest.RequestInfo
	path path
	// query is the request's, without what is the view's own.
	query url.Values
	// members are those that are meant.
	members []fleet.Member
	// rules are those by which the view has what is requested; nil if it has everything.
	rules []fleet.ResourceRule
	// terms are what the request says of clusters.
	terms []clusterTerm
	// everyone has the names of the clusters that may be named: those of which the view has
	// what is requested, and that the user may reach.
	everyone []string
	// qualified says that the request calls its object NAME@CLUSTER, or is about objects of one
	// cluster. The answer calls them so too.
	qualified bool
	// inNamespace says that the request calls its namespace NAMESPACE@CLUSTER. The answer does
	// too, and calls objects by their plain names: the namespace leads to the cluster.
	inNamespace bool
	// sent are the versions that a write came with, by the member's. An answer with the same
	// one has it as it was: kubectl diff compares the text.
	sent map[string]string
	// streams says that the request or its answer is no object.
	streams bool
	// changes says that the request may change something, or opens a stream.
	changes bool
	// unlisted is set if the view does not have the resource: it gets the request as it is.
	unlisted fleet.Member
}

// requestInfo reads requests as the hub and the agents do.
var requestInfo = reading.Resolver

// newRequest finds out what a request wants, and of which members.
func newRequest(r *http.Request, view *fleet.View, members []fleet.Member) (*request, error) {
	info, err := requestInfo.NewRequestInfo(parsable(r))
	if err != nil {
		return nil, fault.Refuse(http.StatusBadRequest, err.Error())
	}
	if !info.IsResourceRequest || isFormerVerb(r.URL.Path, info) {
		return nil, fault.Refuse(http.StatusNotFound, "a view has the resources of the Kubernetes API, discovery and OpenAPI: ask one cluster for anything else")
	}
	q := &request{view: view, info: info, query: r.URL.Query(), members: members, everyone: clusterNames(members), changes: changes(r, info)}
	if q.path, err = newPath(r.URL, info); err != nil {
		return nil, err
	}
	q.cutNamespace()
	listed, err := q.listed()
	if err != nil {
		return nil, err
	}
	if !listed {
		if q.unlisted, err = q.find(view.UnlistedCluster); apierrors.IsNotFound(err) {
			// In other words than find's: they would tell the name of the cluster.
			err = fault.Refuse(http.StatusNotFound, fmt.Sprintf("view %q has resource %q of API group %q on no cluster that you may reach", view.Name, info.Resource, info.APIGroup))
		}
		if err == nil && q.inNamespace && !slices.Contains(q.terms[0].clusters, view.UnlistedCluster) {
			err = q.noCluster()
		}
		return q, err
	}
	q.everyone = clusterNames(q.having(members))
	q.members = q.narrow(members)
	if q.collection() {
		return q, q.chooseBySelector()
	}
	q.streams = isStream(r, info)
	if plain, cluster, ok := q.cutName(); ok {
		q.path, q.info.Name, q.qualified = q.path.named(plain), plain, true
		q.terms = append(q.terms, clusterTerm{[]string{cluster}, true})
		q.members = q.narrow(q.members)
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
func (q *request) cutNamespace() {
	if q.info.Resource == "namespaces" {
		return // it is the object
	}
	plain, cluster, ok := cutLast(q.info.Namespace) // a namespace has no @ of its own
	if !ok {
		return
	}
	q.path, q.info.Namespace, q.inNamespace = q.path.within(plain), plain, true
	q.terms = append(q.terms, clusterTerm{[]string{cluster}, true})
}

// cutName takes the cluster off the name in the path. The name of what is behind a proxy may
// have a scheme and a port: https:NAME@CLUSTER:8443.
func (q *request) cutName() (plain, cluster string, ok bool) {
	if plain, cluster, ok = q.cut(q.info.Name); ok || q.info.Subresource != "proxy" {
		return plain, cluster, ok
	}
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(q.info.Name)
	if !ok {
		return "", "", false
	}
	if plain, cluster, ok = q.cut(name); !ok {
		return "", "", false
	}
	return utilnet.JoinSchemeNamePort(scheme, plain, port), cluster, true
}

// isFormerVerb reports whether the path has a verb before the resource, as
// /api/v1/watch/pods. It is deprecated since Kubernetes 1.11.
func isFormerVerb(path string, info *apirequest.RequestInfo) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	first := 2 // behind api/v1
	if info.APIPrefix == "apis" {
		first = 3
	}
	return first < len(segments) && (segments[first] == "watch" || segments[first] == "proxy")
}

// listed reports whether the view has the resource, and finds the rules by which it has it.
// It restricts a request for all namespaces to the one that the view has.
func (q *request) listed() (bool, error) {
	if len(q.view.Resources) == 0 {
		return true, nil
	}
	namespace := q.info.Namespace
	if q.info.Resource == "namespaces" {
		if plain, _, ok := q.cut(namespace); ok {
			namespace = plain
		}
	}
	var others []fleet.ResourceRule // of other namespaces
	for _, rule := range q.view.Resources {
		switch {
		case !rule.Selects(q.info.APIGroup, q.info.Resource):
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
	all := namespace == "" && q.collection()
	switch {
	case q.rules == nil && others == nil && q.view.UnlistedCluster != "":
		return false, nil
	case q.rules == nil && others == nil:
		return false, fault.Refuse(http.StatusNotFound, fmt.Sprintf("view %q does not have resource %q of API group %q", q.view.Name, q.info.Resource, q.info.APIGroup))
	case q.rules != nil && !(all && q.lacking(others)):
		return true, nil
	case q.rules == nil && all && len(namespaces) == 1:
		q.path = q.path.in(namespaces[0])
		q.info.Namespace = namespaces[0]
		q.rules = others
		return true, nil
	}
	return false, fault.Refuse(http.StatusNotFound, fmt.Sprintf("view %q has resource %q in namespaces %s only%s: name one of them", q.view.Name, q.info.Resource,
		strings.Join(namespaces, ", "), onSome[q.rules != nil]))
}

// onSome says that not all clusters are meant.
var onSome = map[bool]string{true: " on some of its clusters"}

// lacking reports whether a cluster of other rules is in none of those of the request: all
// namespaces would then be fewer than the view has.
func (q *request) lacking(others []fleet.ResourceRule) bool {
	return slices.ContainsFunc(q.members, func(m fleet.Member) bool {
		return !ruled(q.rules, m.Name()) && ruled(others, m.Name())
	})
}

// ruled reports whether one of the rules is about a cluster.
func ruled(rules []fleet.ResourceRule, cluster string) bool {
	return slices.ContainsFunc(rules, func(rule fleet.ResourceRule) bool { return rule.Of(cluster) })
}

// collection reports whether the path has no name.
func (q *request) collection() bool { return q.path.name == len(q.path.segments) }

// cut takes NAME@CLUSTER apart. Names of some kinds may have an @ of their own: what
// follows the last one is a cluster only if the view has it.
func (q *request) cut(name string) (plain, cluster string, ok bool) {
	plain, cluster, ok = cutLast(name)
	return plain, cluster, ok && slices.Contains(q.everyone, cluster)
}

// cutLast takes NAME@CLUSTER apart, whatever clusters there are.
func cutLast(name string) (plain, cluster string, ok bool) {
	at := strings.LastIndexByte(name, '@')
	if at <= 0 {
		return "", "", false
	}
	return name[:at], name[at+1:], true
}

// only returns the member that the request is about, if it is about one whatever the
// members answer.
func (q *request) only() (m fleet.Member, ok bool) {
	if q.bare() || len(q.members) != 1 {
		return nil, false
	}
	return q.members[0], true
}

// find returns the member with a name.
func (q *request) find(cluster string) (fleet.Member, error) {
	for _, m := range q.members {
		if m.Name() == cluster {
			return m, nil
		}
	}
	return nil, fault.Refuse(http.StatusNotFound, fmt.Sprintf("view %q has no cluster %q that you may reach", q.view.Name, cluster))
}

// noCluster is the error of a request that is about no cluster at all.
func (q *request) noCluster() error {
	if len(q.everyone) == 0 {
		return fault.Refuse(http.StatusForbidden, fmt.Sprintf("view %q has no cluster that you may reach: bind a role such as ClusterRole cluster-proxy-user on the hub", q.view.Name))
	}
	var unknown []string
	for _, term := range q.terms {
		if term.equal && !slices.ContainsFunc(term.clusters, func(name string) bool { return slices.Contains(q.everyone, name) }) {
			for _, name := range term.clusters {
				unknown = append(unknown, strconv.Quote(name))
			}
		}
	}
	wrong := "that all selectors of the request choose"
	if len(unknown) > 0 {
		slices.Sort(unknown)
		wrong = strings.Join(unknown[:min(len(unknown), fault.MaxNamed)], " or ") + " that you may reach"
	}
	return fault.Refuse(http.StatusNotFound, fmt.Sprintf("view %q has no cluster %s; it has: %s", q.view.Name, wrong, fleet.SomeOf(q.everyone)))
}
