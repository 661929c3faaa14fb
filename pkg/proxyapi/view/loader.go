package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

var (
	// errIndexSlow ends a question that the index does not answer in time.
	errIndexSlow = errors.New("no answer in time")
	// errNoneWaits ends a question whose answer is not wanted any more.
	errNoneWaits = errors.New("no cluster's answer is waited for")
)

// indexedLists asks the index for the tables of clusters, for one request. While a question is under way, the clusters
// that package list asks for meanwhile wait, and are asked for together in the next one.
type indexedLists struct {
	index  Index // nil if there is none
	caller indexapi.Caller
	// ctx is the request's, and begin how long a table may take to come.
	ctx    context.Context
	cancel context.CancelFunc
	begin  time.Duration
	// whole says that the view is all or nothing.
	whole bool
	// held counts what tables take until they were read.
	held *fleet.Holding

	warnings             warnings
	answered, remembered Names

	mu      sync.Mutex
	waiting []*question
	asking  bool
	failed  bool
	running sync.WaitGroup
}

// question is for the table of one cluster.
type question struct {
	list
	cluster indexapi.Cluster
	ctx     context.Context
	// answer gets one value.
	answer chan indexAnswer
}

// indexAnswer is a table, or says that the cluster is to be asked itself, if it has no head.
type indexAnswer struct {
	head  *indexapi.Head
	table []byte
	// release must be called when the table is not needed any more.
	release func()
}

var askCluster = indexAnswer{release: func() {}}

// newIndexedLists returns what asks the index for one request, until its end.
func newIndexedLists(r *http.Request, index Index, held *fleet.Memory, view *fleet.View) *indexedLists {
	x := &indexedLists{index: index, caller: callerOf(scope.Of(r.Context())), begin: min(beginIndexed, view.Timeout/2), whole: view.FailWhenUnreachable, held: held.Begin(view.User)}
	x.ctx, x.cancel = context.WithCancel(r.Context())
	return x
}

// answer returns the answer of the index in the place of a cluster. It returns nil if the cluster is to be asked.
func (x *indexedLists) answer(r *http.Request, info *request.RequestInfo, cluster, uid string) *http.Response {
	l, token, ok := listOf(r, info)
	if !ok {
		return nil
	}
	answer := x.ask(r.Context(), l, indexapi.Cluster{Name: cluster, UID: uid, Continue: token})
	head := answer.head
	// The clusters of a view that is all or nothing have to answer themselves.
	isPart := head != nil && (!head.AsOf.IsZero() || head.Incomplete != "")
	// A list of one name needs a right to that name alone, of which the index does not ask.
	byName := head != nil && head.Forbidden != "" && info.Name != ""
	if head == nil || head.Unindexed != "" || byName || isPart && x.whole {
		answer.release()
		if token == "" {
			return nil
		}
		// No kube-apiserver can go on from there.
		return refusal(r, apierrors.NewResourceExpired("the fleet index cannot go on with this list: list again").ErrStatus)
	}
	x.note(head)
	switch {
	case head.Forbidden != "":
		answer.release()
		of := schema.GroupResource{Group: l.resource.Group, Resource: l.resource.Resource}
		return refusal(r, apierrors.NewForbidden(of, "", errors.New(head.Forbidden)).ErrStatus)
	case head.Absent:
		answer.release()
		return refusal(r, status.New(http.StatusNotFound, "the server could not find the requested resource").ErrStatus)
	}
	return respond(r, http.StatusOK, &tableBody{bytes.NewReader(answer.table), answer.release}, len(answer.table))
}

// note keeps what the client and the audit log are to know of an answer.
func (x *indexedLists) note(head *indexapi.Head) {
	x.answered.Add(head.Cluster)
	if head.Remembered {
		x.remembered.Add(head.Cluster)
	}
	var said string
	if !head.AsOf.IsZero() {
		said = fmt.Sprintf("was last heard at %s; its objects are as of then", head.AsOf.UTC().Format(time.RFC3339))
	}
	if head.Incomplete != "" {
		if said != "" {
			said += "; it "
		}
		said += fmt.Sprintf("is incomplete in the fleet index (%s)", head.Incomplete)
	}
	if said != "" {
		x.warnings.of(head.Cluster, said)
	}
}

// ask returns what the index answers for a cluster.
func (x *indexedLists) ask(ctx context.Context, l list, cluster indexapi.Cluster) indexAnswer {
	q := &question{l, cluster, ctx, make(chan indexAnswer, 1)}
	if !x.enqueue(q) {
		return askCluster
	}
	select {
	case answer := <-q.answer:
		return answer
	case <-ctx.Done():
		go func() { (<-q.answer).release() }()
		return askCluster
	}
}

// enqueue reports false if the index is not asked any more.
func (x *indexedLists) enqueue(q *question) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.index == nil {
		x.warnings.once(noIndex)
		return false
	}
	if x.failed {
		return false
	}
	x.waiting = append(x.waiting, q)
	if !x.asking {
		x.asking = true
		x.running.Go(x.run)
	}
	return true
}

// run asks until none waits.
func (x *indexedLists) run() {
	for {
		together := x.next()
		if len(together) == 0 {
			return
		}
		x.askTogether(together)
	}
}

// next takes those that wait for the same as the first.
func (x *indexedLists) next() (together []*question) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var others []*question
	for _, q := range x.waiting {
		switch {
		case x.failed:
			q.answer <- askCluster
		case q.list == x.waiting[0].list && len(together) < fleet.MaxAsked:
			together = append(together, q)
		default:
			others = append(others, q)
		}
	}
	x.waiting, x.asking = others, len(together) > 0
	return together
}

// askTogether asks one question, and answers all that are part of it.
func (x *indexedLists) askTogether(together []*question) {
	ctx, cancel := context.WithCancelCause(x.ctx)
	defer cancel(nil)
	timer := time.AfterFunc(x.begin, func() { cancel(errIndexSlow) })
	defer timer.Stop()
	var left atomic.Int32
	left.Store(int32(len(together)))
	l := together[0].list
	question := &indexapi.TablesRequest{
		Caller: x.caller, Resource: l.resource, Version: l.version, Namespace: l.namespace,
		LabelSelector: l.labels, FieldSelector: l.columns, Metadata: l.metadata, Limit: l.limit,
	}
	for _, q := range together {
		question.Clusters = append(question.Clusters, q.cluster)
		defer context.AfterFunc(q.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(errNoneWaits)
			}
		})()
	}
	rest, taken := together, 0
	err := x.index.Tables(ctx, question, func(n int) error {
		taken += n
		return x.held.Add(int64(n))
	}, func(head *indexapi.Head, table []byte) error {
		timer.Reset(x.begin)
		rest[0].answer <- indexAnswer{head, table, x.releasing(taken)}
		rest, taken = rest[1:], 0
		return nil
	})
	x.releasing(taken)()
	if err != nil && !errors.Is(context.Cause(ctx), errNoneWaits) && x.ctx.Err() == nil {
		x.fail(err)
	}
	for _, q := range rest {
		q.answer <- askCluster
	}
}

// releasing returns what gives back n bytes.
func (x *indexedLists) releasing(n int) func() {
	return sync.OnceFunc(func() { _ = x.held.Add(-int64(n)) }) // it does not grow
}

// fail has clusters asked themselves for the rest of the request.
func (x *indexedLists) fail(err error) {
	if errors.Is(err, fleet.ErrHeld) {
		x.warnings.once(indexTooLarge)
	} else {
		x.warnings.once(indexSilent)
		klog.FromContext(x.ctx).Error(err, "Failed to list from the fleet index")
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failed = true
}

// end ends what is under way, and notes for the audit log what was answered.
func (x *indexedLists) end() {
	x.mu.Lock()
	x.failed = true
	x.mu.Unlock()
	x.cancel()
	x.running.Wait()
	x.held.Forget()
	for key, names := range map[string]string{"indexed": x.answered.String(), "remembered-rights": x.remembered.String()} {
		if names != "" {
			audit.AddAuditAnnotation(x.ctx, scope.AnnotationPrefix+key, names)
		}
	}
}
