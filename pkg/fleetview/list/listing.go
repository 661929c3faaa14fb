package list

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

// Lister answers lists. It is safe for concurrent use.
type Lister struct {
	clock     *version.Clock
	positions *position.Store
	// held counts what half-read answers of members take.
	held *fleet.Memory
	// usual are the shares of first pages, by who asked for what.
	usual *fleet.Sized[string, share]
	// kinds are those that users' lists were of, where a resource is not called like its kind.
	kinds *fleet.Sized[string, metav1.TypeMeta]
}

// listing is one list, or one page of it.
type listing struct {
	*request.Request
	lister *Lister
	form   request.Form
	// limit is how many items the page may have; 0 is without limit.
	limit int
	// at is the list's version, of when the first page was asked for.
	at version.Version
	// pageNumber counts the pages before; first says that there is none.
	pageNumber int
	first      bool
	// informer says that the list is an informer's, and since is when this page was asked for.
	informer bool
	since    time.Time
	// next has the members to ask, in order; memberToken goes on with the first of them.
	next        []fleet.Member
	memberToken string
	// begun is the member of whose objects the page before had a part; nil if there is none.
	begun fleet.Member
	// asked is the wave that is read now.
	asked []fleet.Member
	// deferred have been passed over. They are next when there are no others, which last
	// says.
	deferred []fleet.Member
	last     bool
	// clusters and items are how many were read, on all pages.
	clusters, items int
	// exact are the versions that the client wants, by UID; nil for the newest.
	exact map[string]string

	page     *page
	failures []*fault.Fault
	// absent are the refusals of members that do not have the resource.
	absent []*fault.Fault
	// usual is what the first page had the last time; zero if that is not known.
	usual share
	// late are those that had not begun to answer when the header was sent, or have not yet.
	late []fleet.Member
	// answered counts members that have a part in this page.
	answered int
}

// page writes the answer to a list. Items of a member that is read are
// kept until the member was read to its end, where that can be.
type page struct {
	w http.ResponseWriter
	l *listing
	// buf is what is not written, of which whole are bytes of members that were read.
	buf   []byte
	whole int
	// items were added; wholeItems of them are of members that were read.
	items, wholeItems int
	// started says that the header is out.
	started bool
	full    bool

	meta  merge.ListMeta
	table merge.Table
	// versions are those of the members that were read, by UID.
	versions map[string]string
	// names are those that were seen, to find those that two clusters have.
	names     map[uint64]string
	colliding bool
}

// brokenError is a member's answer that is none, or that broke off.
type brokenError struct{ err error }

// share is how many items some clusters have.
type share struct{ clusters, items int }

// isLastMember reports whether what follows on later pages is the rest of one member's objects,
// who says how many they are. Nobody knows that of members that have not been asked.
func (l *listing) isLastMember() bool {
	return l.memberToken != "" && len(l.next) == 1 && len(l.deferred) == 0
}

// lateFaults say in Warnings that members are late.
func (l *listing) lateFaults() []*fault.Fault {
	var faults []*fault.Fault
	for _, m := range l.late {
		faults = append(faults, &fault.Fault{Cluster: m.Name(), Reason: "no answer within half of the view's timeout"})
	}
	return faults
}

// filling is how many clusters are likely to have so many items.
func (s share) filling(items int) int { return max(1, (items*s.clusters+s.items-1)/s.items) }

// about is who asked for what, whichever page it is.
func (l *listing) about() string {
	selectors := url.Values{"l": l.Query["labelSelector"], "f": l.Query["fieldSelector"]}
	return strings.Join([]string{l.View.User, l.View.Name, l.Path.String(), selectors.Encode()}, "\n")
}

// maxUsual bounds the bytes of requests of which it is known how many members they need.
const maxUsual = 1 << 20

// maxKinds bounds the bytes of the collections of which the kind is remembered.
const maxKinds = 256 << 10

func (e *brokenError) Error() string { return "its answer is not usable: " + e.err.Error() }

func (e *brokenError) Unwrap() error { return e.err }
