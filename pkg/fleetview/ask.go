package fleetview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

const (
	// maxBegun bounds how many members are asked at a time for one request.
	maxBegun = 64
	// maxStatus bounds the answer of a member that refuses a request.
	maxStatus = 64 << 10
	// maxObject bounds one object of a member. etcd holds no larger ones, and watches of
	// kube-apiservers none above 10 MiB.
	maxObject = 16 << 20
)

// failure says why a cluster has no part in an answer.
type failure struct {
	cluster string
	// code is the status with which the cluster refused; 0 if it did not answer.
	code   int
	reason string
	// status is what it answered.
	status metav1.Status
}

func (f *failure) Error() string { return fmt.Sprintf("cluster %q %s", f.cluster, f.outcome()) }

// outcome says what the cluster did, after its name.
func (f *failure) outcome() string {
	if f.code == 0 {
		return fmt.Sprintf("did not answer (%s)", f.reason)
	}
	return fmt.Sprintf("refused (%s)", f.reason)
}

// failuresOf are those of clusters that need not be asked.
func failuresOf(missing []Missing) []*failure {
	failures := make([]*failure, 0, len(missing))
	for _, m := range missing {
		failures = append(failures, &failure{cluster: m.Cluster, reason: m.Reason})
	}
	return failures
}

// memberResponse is how one member answered.
type memberResponse struct {
	member Member
	// response is nil if there is a failure. The caller closes its body.
	response *http.Response
	failure  *failure
}

// memberRequest is what members are asked.
type memberRequest struct {
	method  string
	path    string
	query   url.Values
	accept  string
	timeout time.Duration
}

// errTimeout is the cause of a context that ended because a member did not answer in time.
var errTimeout = errors.New("no answer within the view's timeout")

// ask sends a request to one member. Its answer must begin within the request's timeout,
// and each read of the body take no longer.
func (q memberRequest) ask(ctx context.Context, m Member) memberResponse {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(q.timeout, func() { cancel(errTimeout) })
	defer timer.Stop()
	response, err := q.send(ctx, m)
	if err != nil {
		err = causeOf(ctx, err)
		cancel(nil)
		return memberResponse{member: m, failure: &failure{cluster: m.Name(), reason: err.Error()}}
	}
	response.Body = &timedBody{ReadCloser: response.Body, timeout: q.timeout, ctx: ctx, cancel: cancel}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return memberResponse{member: m, failure: refusedBy(m, response)}
	}
	return memberResponse{member: m, response: response}
}

// send sends the request.
func (q memberRequest) send(ctx context.Context, m Member) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, q.path, nil)
	if err != nil {
		return nil, err
	}
	r.URL.RawQuery = q.query.Encode()
	r.Header.Set("Accept", q.accept)
	return m.RoundTrip(r)
}

// causeOf returns why a request or a read was canceled, if it was, and else err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// refusedBy reads a member's refusal. What is no refusal is no answer.
func refusedBy(m Member, response *http.Response) *failure {
	f := &failure{cluster: m.Name(), code: response.StatusCode, reason: fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))}
	if f.code < 400 || f.code > 599 {
		f.code = 0
		return f
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if status, unread := merge.ReadStatus(body); err == nil && unread == nil && status.Message != "" {
		f.status, f.reason = status, status.Message
		f.status.Code = int32(f.code)
	}
	return f
}

// askAll asks members, some at a time, and returns their answers in the same order.
func (q memberRequest) askAll(ctx context.Context, members []Member) []memberResponse {
	answers := make([]memberResponse, len(members))
	turns := make(chan struct{}, maxBegun)
	var group sync.WaitGroup
	for i, m := range members {
		turns <- struct{}{}
		group.Go(func() {
			answers[i] = q.ask(ctx, m)
			<-turns
		})
	}
	group.Wait()
	return answers
}

// timedBody ends a body of which nothing comes while it is read.
type timedBody struct {
	io.ReadCloser
	timeout time.Duration
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
}

func (b *timedBody) Read(p []byte) (int, error) {
	if b.timer == nil {
		b.timer = time.AfterFunc(b.timeout, func() { b.cancel(errTimeout) })
	} else {
		b.timer.Reset(b.timeout)
	}
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && !eof(err) {
		err = causeOf(b.ctx, err)
	}
	return n, err
}

func (b *timedBody) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// readObject reads one object to its end.
func readObject(a memberResponse) ([]byte, *failure) {
	defer a.response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(a.response.Body, maxObject+1))
	if err == nil && len(body) > maxObject {
		err = fmt.Errorf("an object of more than %d bytes", maxObject)
	}
	if err != nil {
		return nil, &failure{cluster: a.member.Name(), reason: "its answer broke off: " + err.Error()}
	}
	return body, nil
}
