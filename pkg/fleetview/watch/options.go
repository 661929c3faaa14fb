package watch

import (
	"context"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

// Member is one cluster of the view. Its methods are safe for concurrent use.
type Member interface {
	Name() string
	// UID tells the cluster from an earlier one of the same name.
	UID() string
	RoundTrip(r *http.Request) (*http.Response, error)
}

// Options say what one watch of a view is about. All fields are needed unless they say
// otherwise.
type Options struct {
	// Path and Query are the members' request: a collection, and its selectors. Query
	// has none of watch, limit, continue, resourceVersion, resourceVersionMatch,
	// timeoutSeconds, allowWatchBookmarks, sendInitialEvents and includeObject.
	Path  string
	Query url.Values
	// Forms are how the client wants objects, best first. The others are for members that
	// do not have the first.
	Forms []encoding.Form
	// Now are the clusters of the view as the watch begins. Members returns them later. It
	// is asked every MembersEvery, which is 4 s if it is 0.
	Now          []Member
	Members      func(ctx context.Context) ([]Member, error)
	MembersEvery time.Duration
	// Rewriter makes the Rewriter of a member, which translates resourceVersions with
	// the function that it gets.
	Rewriter func(m Member, version func(member string) string) *merge.Rewriter
	// Likely reports whether a kind is likely to be that of the collection; nil if none is
	// more likely than another.
	Likely func(of metav1.TypeMeta) bool
	// MaxObjects is how many objects a stream remembers before it ends, 500,000 if it is 0.
	MaxObjects int
	// ResourceVersion, SendInitialEvents, Bookmarks and Timeout are the client's query;
	// their zero values are what an empty query means.
	ResourceVersion   string
	SendInitialEvents *bool
	Bookmarks         bool
	Timeout           time.Duration
	// FailWhenUnreachable answers 503 if a cluster does not answer at the beginning.
	FailWhenUnreachable bool
	// MemberTimeout is how long a member may take to begin an answer.
	MemberTimeout time.Duration
	// InformerTimeout is how long the initial bookmark waits for clusters that do not answer.
	// With 0 it waits for one answer or failure of each.
	InformerTimeout time.Duration
	// Draining is closed when the process is about to end; nil if it never is.
	Draining <-chan struct{}
	// Clock and Positions are the process' own, shared by all lists and watches.
	Clock     *version.Clock
	Positions *position.Store
	// Owner is the user whose positions the stream makes, and goes on from.
	Owner string
}

const (
	// membersEvery is the default of Options.MembersEvery.
	membersEvery = 4 * time.Second
	// waitingEvery is how often a stream sends a bookmark while the initial one waits.
	waitingEvery = 15 * time.Second
	// bookmarkEvery is how often a stream says its version while that changes.
	bookmarkEvery = time.Minute
	// queueSize is how many bytes of events wait for a client before members' streams do.
	queueSize = 1 << 20
	// queueBuffer is what a queue has at first, and keptQueue the largest that is kept for others.
	queueBuffer = 16 << 10
	keptQueue   = 64 << 10
	// chunkSize is what a client must take within stallTimeout.
	chunkSize    = 64 << 10
	stallTimeout = 10 * time.Second
	// maxNames bounds the name, the namespace and the UID of one object together.
	maxNames = 2 << 10
	// maxDoubt is how long objects wait for what other members have, if their kind is not likely
	// to be the right one.
	maxDoubt = 30 * time.Second
	// maxInitial is how long the initial bookmark waits for a member that goes on sending.
	maxInitial = 5 * time.Minute
	// pageSize is the limit of the lists that members are asked for.
	pageSize = 500
	// maxObjects is the default of Options.MaxObjects. One takes about 200 bytes.
	maxObjects = 500_000
	// minBackoff and maxBackoff bound the pauses before a member is asked again, and
	// refusedPause is the one after a refusal, which does not go away by itself. It begins
	// with acceptedPause, and doubles, after a watch that went well: a kube-apiserver that
	// has just started refuses everybody until it knows who may what.
	minBackoff    = 200 * time.Millisecond
	maxBackoff    = 10 * time.Second
	refusedPause  = 30 * time.Second
	acceptedPause = time.Second
)

// wantsInitialEvents reports whether the client asks for objects and the bookmark behind them.
func (o Options) wantsInitialEvents() bool { return o.SendInitialEvents != nil && *o.SendInitialEvents }

// fromNow reports whether the client wants nothing but changes from now on.
func (o Options) fromNow() bool {
	return o.anew() && o.SendInitialEvents != nil && !*o.SendInitialEvents
}

// anew reports whether the client does not go on from a version.
func (o Options) anew() bool { return o.ResourceVersion == "" || o.ResourceVersion == "0" }
