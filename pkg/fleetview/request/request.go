package request

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// Request is what one request of a view wants.
type Request struct {
	View *fleet.View
	Info *apirequest.RequestInfo
	Path Path
	// Query is the request's, without what is the view's own.
	Query url.Values
	// Members are those that are meant.
	Members []fleet.Member
	// rules are those by which the view has what is requested; nil if it has everything.
	rules []fleet.ResourceRule
	// terms are what the request says of clusters.
	terms []clusterTerm
	// Everyone has the names of the clusters that may be named: those of which the view has
	// what is requested, and that the user may reach.
	Everyone []string
	// qualified says that the request calls its object NAME@CLUSTER, or is about objects of one
	// cluster. The answer calls them so too.
	qualified bool
	// inNamespace says that the request calls its namespace NAMESPACE@CLUSTER. The answer does
	// too, and calls objects by their plain names: the namespace leads to the cluster.
	inNamespace bool
	// sent are the versions that a write came with, by the member's. An answer with the same
	// one has it as it was: kubectl diff compares the text.
	sent map[string]string
	// Streams says that the request or its answer is no object.
	Streams bool
	// Changes says that the request may change something, or opens a stream.
	Changes bool
	// Unlisted is set if the view does not have the resource: it gets the request as it is.
	Unlisted fleet.Member
}

// Bare reports whether the request names no cluster, and the view wants one named.
func (q *Request) Bare() bool {
	return q.Changes && q.View.Writes == fleet.WritesNamed && !q.Chosen()
}

// Single returns the cluster of a view that has no other.
func (q *Request) Single() (fleet.Member, error) {
	switch {
	case q.Unlisted != nil:
		return q.Unlisted, nil
	case len(q.Members) > 0:
		return q.Members[0], nil
	}
	return nil, q.NoCluster()
}

// Collection reports whether the path has no name.
func (q *Request) Collection() bool { return q.Path.name == len(q.Path.segments) }

// cut takes NAME@CLUSTER apart. Names of some kinds may have an @ of their own: what
// follows the last one is a cluster only if the view has it.
func (q *Request) cut(name string) (plain, cluster string, ok bool) {
	plain, cluster, ok = CutLast(name)
	return plain, cluster, ok && slices.Contains(q.Everyone, cluster)
}

// CutLast takes NAME@CLUSTER apart, whatever clusters there are.
func CutLast(name string) (plain, cluster string, ok bool) {
	at := strings.LastIndexByte(name, '@')
	if at <= 0 {
		return "", "", false
	}
	return name[:at], name[at+1:], true
}

// Only returns the member that the request is about, if it is about one whatever the
// members answer.
func (q *Request) Only() (m fleet.Member, ok bool) {
	if q.Bare() || len(q.Members) != 1 {
		return nil, false
	}
	return q.Members[0], true
}

// Find returns the member with a name.
func (q *Request) Find(cluster string) (fleet.Member, error) {
	for _, m := range q.Members {
		if m.Name() == cluster {
			return m, nil
		}
	}
	return nil, fault.Refuse(http.StatusNotFound, fmt.Sprintf("view %q has no cluster %q that you may reach", q.View.Name, cluster))
}

// NoCluster is the error of a request that is about no cluster at all.
func (q *Request) NoCluster() error {
	if len(q.Everyone) == 0 {
		return fault.Refuse(http.StatusForbidden, fmt.Sprintf("view %q has no cluster that you may reach: bind a role such as ClusterRole cluster-proxy-user on the hub", q.View.Name))
	}
	var unknown []string
	for _, term := range q.terms {
		if term.equal && !slices.ContainsFunc(term.clusters, func(name string) bool { return slices.Contains(q.Everyone, name) }) {
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
	return fault.Refuse(http.StatusNotFound, fmt.Sprintf("view %q has no cluster %s; it has: %s", q.View.Name, wrong, fleet.SomeOf(q.Everyone)))
}

// clusterTerm is what a request says of clusters: that it is about one of some, or about
// none of them.
type clusterTerm struct {
	clusters []string
	equal    bool
}

// Narrow leaves the clusters of which the view has what is requested, and that the request
// is about. A watch asks it again when the clusters of the view have changed.
func (q *Request) Narrow(members []fleet.Member) []fleet.Member {
	members = q.having(members)
	for _, term := range q.terms {
		members = slices.DeleteFunc(slices.Clone(members), func(m fleet.Member) bool { return slices.Contains(term.clusters, m.Name()) != term.equal })
	}
	return members
}

// having leaves the clusters of which the view has what is requested.
func (q *Request) having(members []fleet.Member) []fleet.Member {
	if slices.ContainsFunc(q.rules, func(rule fleet.ResourceRule) bool { return rule.Clusters != nil }) {
		members = slices.DeleteFunc(slices.Clone(members), func(m fleet.Member) bool { return !ruled(q.rules, m.Name()) })
	}
	return members
}

// Choose notes that the request is about one cluster.
func (q *Request) Choose(cluster string) {
	q.terms = append(q.terms, clusterTerm{[]string{cluster}, true})
	q.Members = q.Narrow(q.Members)
}

// Choosing reports whether the request says anything of clusters.
func (q *Request) Choosing() bool { return len(q.terms) > 0 }

// Chosen reports whether the request names its cluster.
func (q *Request) Chosen() bool {
	return slices.ContainsFunc(q.terms, func(term clusterTerm) bool { return term.equal && len(term.clusters) == 1 })
}

// ruled reports whether one of the rules is about a cluster.
func ruled(rules []fleet.ResourceRule, cluster string) bool {
	return slices.ContainsFunc(rules, func(rule fleet.ResourceRule) bool { return rule.Of(cluster) })
}

// KindOf is what the kind of the request's objects is remembered by. One user's
// clusters cannot influence another's.
func (q *Request) KindOf() string {
	return strings.Join([]string{q.View.User, q.View.Name, q.Info.APIGroup, q.Info.APIVersion, q.Info.Resource}, "\n")
}

// Likely reports whether a kind is the one of the request's resource, if it is called as
// most are.
func (q *Request) Likely(kind metav1.TypeMeta) bool {
	of := kind.GroupVersionKind()
	resource, _ := meta.UnsafeGuessKindToResource(of)
	return of.Group == q.Info.APIGroup && of.Version == q.Info.APIVersion && resource.Resource == q.Info.Resource
}

// IsReview reports whether a request asks clusters something by making an object that is not
// stored, and names none of them.
func (q *Request) IsReview() bool {
	return q.Info.Verb == "create" && q.Collection() && q.Info.Subresource == "" && slices.Contains(reviews, q.Info.APIGroup) && !q.Chosen()
}
