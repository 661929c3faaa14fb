package session

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/frames"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/recording"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// recorder records sessions of commands, as the policy says. A nil recorder records none.
type recorder struct {
	policy  *RecordingOptions
	store   *recording.Store
	views   scope.Views
	metrics *metrics.Metrics
	// cut ends a session that cannot be recorded.
	cut func(name, reason string, why *metav1.Status) *Session

	mu sync.Mutex
	// unknown are the sets of the policy of which it is not known which clusters they have.
	unknown sets.Set[string]
}

// covers reports whether sessions to a cluster are recorded. A set of which it is not known whether
// the cluster is in it counts as if it were: a name with a typing error must not end all recordings.
func (r *recorder) covers(cluster string) bool {
	if r == nil {
		return false
	}
	covered := len(r.policy.Clusters) == 0 && len(r.policy.ClusterSets) == 0 || slices.Contains(r.policy.Clusters, cluster)
	for _, set := range r.policy.ClusterSets { // all of them, for the metric
		in, err := r.views.InSet(cluster, set)
		r.note(set, err)
		covered = covered || in || err != nil
	}
	return covered
}

// note says once that it is not known which clusters a set has.
func (r *recorder) note(set string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if (err != nil) == r.unknown.Has(set) {
		return
	}
	if err != nil {
		r.unknown.Insert(set)
		klog.Background().Error(err, "Sessions to all clusters are recorded, because it is not known which ones a set of the policy has", "set", set)
	} else {
		r.unknown.Delete(set)
	}
	r.metrics.RecordingSetsUnknown.Set(float64(len(r.unknown)))
}

// isCommand reports whether an upgrade may be one by which a command is run: exec and attach,
// and by nodes/proxy everything, because the kubelet has both.
func isCommand(rs *scope.Scope) bool {
	kind := kindOf(rs)
	return kind == kindExec || kind == kindAttach || kind == kindUpgrade && isNodeProxy(rs)
}

func isNodeProxy(rs *scope.Scope) bool {
	return !rs.Target.ForService() && rs.Inner != nil && rs.Inner.Resource == "nodes" && rs.Inner.Subresource == "proxy"
}

// Refusal is the error of a request that could run a command which no recording can follow, if
// nobody may have one. The kubelet's run is one, whatever its headers say of upgrades.
func (r *recorder) Refusal(rs *scope.Scope, method string) error {
	if !r.covers(rs.Target.Cluster) || !r.policy.FailClosed || rs.Target.ForService() {
		return nil
	}
	switch {
	case method == http.MethodConnect:
		return status.New(http.StatusForbidden, fmt.Sprintf("sessions to cluster %q are recorded, which is not possible within a connection by CONNECT: use the cluster's path or host", rs.Target.Cluster))
	case isNodeProxy(rs) && method != http.MethodGet && method != http.MethodHead:
		return status.New(http.StatusForbidden, fmt.Sprintf("commands on cluster %q are recorded, which is not possible by %s of nodes/proxy: use kubectl exec", rs.Target.Cluster, method))
	}
	return nil
}

// begin begins the recording of a session, before its request is sent. It returns nil for
// one that is not recorded.
func (r *recorder) begin(ctx context.Context, rs *scope.Scope, one *Session) (*tape, error) {
	if !r.covers(rs.Target.Cluster) || !isCommand(rs) {
		return nil, nil
	}
	t := &tape{recorder: r, session: one, ctx: ctx}
	shown := one.Status
	var err error
	t.Recording, err = r.store.Open(ctx, recording.Session{Name: one.Name, User: shown.User, Kind: shown.Kind, Cluster: shown.Cluster, Target: shown.Target, Replica: shown.Replica}, t.failed)
	switch {
	case err == nil:
		return t, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case r.policy.FailClosed:
		r.failed(ctx, one, metrics.SessionRejected, err)
		return nil, status.New(http.StatusServiceUnavailable, fmt.Sprintf("sessions to cluster %q must be recorded, which is not possible now: %v; ask the administrators of the hub to look after the %s of recordings", rs.Target.Cluster, err, r.policy.place()))
	}
	r.failed(ctx, one, metrics.SessionUnrecorded, err)
	return nil, nil
}

// failed says that a session is not recorded.
func (r *recorder) failed(ctx context.Context, one *Session, outcome string, err error) {
	r.metrics.RecordingsFailed.WithLabelValues(outcome).Inc()
	var of *recording.ServiceError
	var cause error
	if errors.As(err, &of) {
		cause = of.Cause // which users do not read
	}
	klog.FromContext(ctx).Error(err, "A session cannot be recorded", "cause", cause, "outcome", outcome, "session", one.Name, "user", one.Status.User, "kind", one.Status.Kind, "cluster", one.Status.Cluster, "target", one.Status.Target)
	if outcome != metrics.SessionOver { // whose audit event is written
		audit.AddAuditAnnotation(ctx, scope.AnnotationPrefix+"recording-failed", outcome+": "+err.Error())
	}
}

// tape is the recording of one session. A nil tape records nothing.
type tape struct {
	*recording.Recording
	recorder *recorder
	session  *Session
	ctx      context.Context
	// over says that the session has ended.
	over atomic.Bool
	// failure is why the session is not recorded any more.
	failure atomic.Pointer[metav1.Status]
}

// follow begins to record what is sent. The session must be listed.
func (t *tape) follow(f *frames.Follower) {
	if t == nil {
		return
	}
	audit.AddAuditAnnotation(t.ctx, scope.AnnotationPrefix+"recording", t.Path())
	f.Observe(t.take, t.Stop)
	if t.failure.Load() != nil { // before it could be ended
		t.cut()
	}
}

// take records a piece of a stream. The client shows the stream for errors in its
// own words.
func (t *tape) take(s frames.Stream, p []byte) {
	switch {
	case s == frames.Stdout:
		t.Add(recording.Output, p)
	case s == frames.Stderr:
		t.Add(recording.ErrorOutput, p)
	case s == frames.Stdin && t.recorder.policy.Stdin:
		t.Add(recording.Input, p)
	case s == frames.Resize:
		t.AddSize(p)
	}
}

// failed is called when the session is not recorded any more.
func (t *tape) failed(err error) {
	outcome := metrics.SessionUnrecorded
	switch {
	case t.over.Load():
		outcome = metrics.SessionOver
	case t.recorder.policy.FailClosed:
		outcome = metrics.SessionCut
	}
	t.recorder.failed(t.ctx, t.session, outcome, err)
	if outcome == metrics.SessionCut {
		why := status.New(http.StatusServiceUnavailable, fmt.Sprintf("ended because it cannot be recorded any more: %v; ask the administrators of the hub to look after the %s of recordings", err, t.recorder.policy.place())).ErrStatus
		why.Details = nil // there is nothing to try again
		t.failure.Store(&why)
		t.cut()
	}
}

// cut ends the session, if it is listed already.
func (t *tape) cut() { t.recorder.cut(t.session.Name, "not-recorded", t.failure.Load()) }

// room waits until more can be recorded.
func (t *tape) room() {
	if t != nil {
		t.Room()
	}
}

// end ends the recording. began says whether the session has begun.
func (t *tape) end(began bool) {
	switch {
	case t == nil:
		return
	case !began:
		t.Discard()
		return
	}
	t.over.Store(true)
	why := "the session has ended"
	if status := t.session.Why.Load(); status != nil {
		why = status.Message
	}
	t.Close(why)
	if lost := t.Lost(); lost > 0 {
		audit.AddAuditAnnotation(t.ctx, scope.AnnotationPrefix+"recording-lost-bytes", strconv.FormatInt(lost, 10))
	}
}
