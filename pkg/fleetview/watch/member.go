package watch

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// member is one cluster in a stream, as the stream sees it.
type member struct {
	to     Member
	source encoding.Source
	// first has the outcome of the first request.
	first chan error
	once  sync.Once

	// The fields below are the stream's: its mu guards them.

	// now is the time of the event that is being written.
	now int64
	// at is the version that the member's stream goes on from, or empty if the member
	// must be listed.
	at string
	// shown are the objects that the client has. It is nil if they are not known, because the
	// client has them from another request.
	shown objects
	// part says that the client may have a part only of a list.
	part bool
	// of is what the member's objects are, as soon as it has said so, and heard says that its
	// first request has ended.
	of    metav1.TypeMeta
	heard bool
	// has says that the client has got all of the member's objects once, missed that a request
	// has failed, and sending that objects of the newest one have come.
	has, missed, sending bool
	// leaving says that the member is not in the view any more.
	leaving bool
}

// newMember returns a member that goes on from version at. Without one the client has nothing
// of it.
func newMember(o *Options, form encoding.Codec, to Member, at string) *member {
	m := &member{to: to, at: at, has: at != "", first: make(chan error, 1)}
	if at == "" {
		m.shown = objects{}
	}
	number := version.Number(to.UID())
	m.source = form.Source(o.Rewriter(to, func(v string) string {
		return version.Version{Time: m.now, Replica: o.Clock.Replica, Cluster: number, Member: version.OfMember(v)}.String()
	}))
	return m
}

// begun says once how the first request to the member went.
func (m *member) begun(err error) { m.once.Do(func() { m.first <- err }) }

func typeOf(k merge.Key) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: k.APIVersion, Kind: k.Kind}
}

// objects are what a stream has shown of one member, by namespace and name. It is kept
// for each stream and member, so it is compact: key and UID share one string.
type objects map[string]known

type known struct {
	uid string
	// version is 0 if it is no decimal; then no other version is equal to it.
	version uint64
}

// nameOf is what objects are remembered by.
func nameOf(k merge.Key) string { return k.Namespace + "/" + k.Name }

func (o objects) put(k merge.Key) {
	name := nameOf(k)
	both := name + k.UID
	o[both[:len(name)]] = known{uid: both[len(name):], version: version.OfMember(k.Version)}
}

// checkNames refuses names that are too long to be remembered. A real name has at most 253
// characters.
func checkNames(k merge.Key) error {
	if len(k.Name)+len(k.Namespace)+len(k.UID) > maxNames {
		return fmt.Errorf("reading an object: its names have more than %d characters", maxNames)
	}
	return nil
}
