package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

// errEnded says that the client's stream has ended, so that members' streams end too.
var errEnded = errors.New("the watch has ended")

// stream is one watch of a client. Members write events to its queue, and the client's
// goroutine takes them out.
type stream struct {
	o      Options
	form   encoding.Codec
	cancel context.CancelFunc
	record *position.Record
	// wake has an element when there is something in the queue.
	wake    chan struct{}
	running sync.WaitGroup

	mu sync.Mutex
	// emptied is signalled when the queue has been emptied, the kind of the objects is known or
	// the stream has ended.
	emptied sync.Cond
	queue   []byte
	ended   bool
	// last is the time of the newest event, stepped that of the newest step in record.
	last, stepped int64
	// news says that a position has changed since the newest event.
	news bool
	// open counts the members of which the client may have a part only.
	open int
	// initial has the members whose first objects the initial bookmark waits for; it is
	// nil when that bookmark was sent, or is not wanted.
	initial map[*member]bool
	// since is when the stream has begun, and overdue says that the initial bookmark waits for no
	// member any more that does not answer.
	since   time.Time
	overdue bool
	// told are the clusters that the newest bookmark has named.
	told string
	// remembered counts the objects that the client has.
	remembered int
	// members are those of the view now, with their refusals.
	members map[*member]*fault.Fault
	// began says that the answer has, and cause is why the stream has ended, if it failed.
	began bool
	cause *metav1.Status
	// of is what the objects are, as soon as it is known. doubt is set while objects wait for
	// that, and trusts says that they have waited for long.
	of     metav1.TypeMeta
	doubt  *time.Timer
	trusts bool
}

func newStream(o Options, form encoding.Codec, cancel context.CancelFunc, start version.Version, versions map[string]string) *stream {
	s := &stream{o: o, form: form, cancel: cancel, wake: make(chan struct{}, 1), members: map[*member]*fault.Fault{}, last: start.Time, stepped: start.Time, of: form.Media().Of}
	s.emptied.L = &s.mu
	s.record = o.Positions.Begin(o.Owner, o.Clock.Replica, start, versions)
	return s
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// step records a change of a member's position at a time. The caller holds mu.
func (s *stream) step(at int64, uid, memberVersion string) {
	s.stepped = at
	s.o.Positions.Step(s.record, position.Step{Time: at, Replica: s.o.Clock.Replica, Uid: uid, Member: version.OfMember(memberVersion), Open: s.open > 0})
}

// settle records a change of a member's position behind the events that were queued. The
// caller holds mu.
func (s *stream) settle(uid, memberVersion string) {
	at := s.last
	if at <= s.stepped {
		at = s.o.Clock.Next()
		s.news = true
	}
	s.step(at, uid, memberVersion)
}

// mark adds a bookmark to the queue, if it is known what the objects are. It does not wait
// for room. The caller holds mu.
func (s *stream) mark(annotations map[string]string) {
	if s.ended || s.of.Kind == "" {
		return
	}
	at := s.o.Clock.Now()
	object := &metav1.PartialObjectMetadata{TypeMeta: s.of}
	lacking := join(s.lacking())
	if lacking != "" {
		annotations = maps.Clone(annotations)
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AnnotationMissing] = lacking
	}
	object.ResourceVersion, object.Annotations = at.String(), annotations
	queue, err := s.form.AppendOwn(s.queue, encoding.Bookmark, object)
	if err != nil {
		return // the next one may be possible
	}
	s.queue, s.told = queue, lacking
	s.last, s.news = at.Time, false
	s.step(at.Time, "", "")
	s.signal()
}

// close ends the stream for members. The caller holds mu.
func (s *stream) close() {
	s.ended = true
	if s.doubt != nil {
		s.doubt.Stop()
	}
	s.cancel()
	s.emptied.Broadcast()
}

// stop ends the stream for members.
func (s *stream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
}

// AnnotationMissing is on bookmarks while the client lacks objects, because clusters have not
// answered or refuse: the names of these, sorted, with commas between them.
const AnnotationMissing = "clusterproxy.open-cluster-management.io/missing-clusters"

// lacking returns the clusters whose objects the client has not got. One that does not have such
// objects is none of them. The caller holds mu.
func (s *stream) lacking() []string {
	var names []string
	for m, refusal := range s.members {
		switch {
		case m.has, m.leaving, refusal != nil && refusal.Code == http.StatusNotFound:
		default:
			names = append(names, m.to.Name())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func join(clusters []string) string { return strings.Join(clusters, ",") }

// fail ends the stream with an ERROR event. The caller holds mu.
func (s *stream) fail(status *metav1.Status) {
	if s.ended {
		return
	}
	s.cause = status
	// Without the event the stream ends too, and the client's next request says why.
	if queue, err := s.form.AppendOwn(s.queue, encoding.Failed, status); err == nil {
		s.queue = queue
	}
	s.close()
	s.signal()
}

// failure returns why the stream has failed, or nil if it has not.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: *s.cause}
}

// expire ends the stream in a way after which the client lists again.
func (s *stream) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(expired())
}

// remember counts objects that the client has got, or has lost. The caller holds mu.
func (s *stream) remember(more int) {
	if s.remembered += more; s.remembered > s.maxObjects() {
		s.fail(s.tooMany())
	}
}

func (s *stream) maxObjects() int {
	if s.o.MaxObjects > 0 {
		return s.o.MaxObjects
	}
	return maxObjects
}

func (s *stream) tooMany() *metav1.Status {
	return gone(fmt.Sprintf("the clusters of the view have more than %d such objects, too many for one watch: watch a namespace, "+
		"select objects by labels, or choose clusters with the field selector metadata.cluster", s.maxObjects()))
}

// statusOf is a refusal as the object of an ERROR event.
func statusOf(f *fault.Fault) *metav1.Status {
	status := f.Status()
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: status.Code, Reason: status.Reason, Message: status.Message,
	}
}

// unreachable says that clusters have not answered in a view that wants all of them.
func unreachable(clusters []string) *metav1.Status {
	faults := make([]*fault.Fault, len(clusters))
	for i, cluster := range clusters {
		faults[i] = &fault.Fault{Cluster: cluster, Reason: "its objects are not complete"}
	}
	return &fault.Unreachable(faults).ErrStatus
}

func expired() *metav1.Status { return gone("too old resource version") }

// gone says that the client must list again.
func gone(message string) *metav1.Status {
	return &fault.Refuse(http.StatusGone, message).ErrStatus
}
