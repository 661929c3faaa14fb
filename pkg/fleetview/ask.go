package fleetview

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

const (
	// maxObject bounds one object of a member. etcd holds no larger ones, and watches of
	// kube-apiservers none above 10 MiB.
	maxObject = 16 << 20
	// leastProgress is how many bytes of an answer must come while one timeout is waited.
	leastProgress = 16 << 10
	// maxTime is how long one answer may take. Kube-apiservers end their own after a minute,
	// unless they are told otherwise.
	maxTime = 5 * time.Minute
)

var errEndless = fmt.Errorf("its answer has not ended within %v", maxTime)

// memberResponse is how one member answered.
type memberResponse struct {
	member fleet.Member
	// response is nil if there is a failure. The caller closes its body.
	response *http.Response
	failure  *fault.Fault
}

// memberRequest is what members are asked.
type memberRequest struct {
	method  string
	path    string
	query   url.Values
	accept  string
	timeout time.Duration
	// body is that of a review, which is a POST.
	body        []byte
	contentType string
}

// ask sends a request to one member. Its answer must begin within the request's timeout,
// and go on: see timedBody.
func (q memberRequest) ask(ctx context.Context, m fleet.Member) memberResponse {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(q.timeout, func() { cancel(fault.ErrTimeout) })
	defer timer.Stop()
	response, err := q.send(ctx, m)
	if err != nil {
		err = fleet.CauseOf(ctx, err)
		cancel(nil)
		return memberResponse{member: m, failure: fault.Of(m.Name(), err)}
	}
	end := time.AfterFunc(maxTime, func() { cancel(errEndless) })
	response.Body = &timedBody{ReadCloser: response.Body, timeout: q.timeout, ctx: ctx, cancel: cancel, end: end}
	if response.StatusCode != http.StatusOK && (q.body == nil || response.StatusCode != http.StatusCreated) {
		defer response.Body.Close()
		return memberResponse{member: m, failure: fault.Read(m.Name(), response)}
	}
	return memberResponse{member: m, response: response}
}

// send sends the request.
func (q memberRequest) send(ctx context.Context, m fleet.Member) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, q.path, bytes.NewReader(q.body)) // without a body that is http.NoBody
	if err != nil {
		return nil, err
	}
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	r.URL.RawQuery = q.query.Encode()
	r.Header.Set("Accept", q.accept)
	return m.RoundTrip(r)
}

// askAll asks members, some at a time, and returns their answers in the same order.
func (q memberRequest) askAll(ctx context.Context, members []fleet.Member) []memberResponse {
	if len(members) == 1 {
		return []memberResponse{q.ask(ctx, members[0])}
	}
	answers := make([]memberResponse, len(members))
	turns := make(chan struct{}, fleet.MaxAsked)
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

// timedBody ends a body of which too little comes while it is read: leastProgress bytes in
// each timeout. The time that the reader takes for itself does not count.
type timedBody struct {
	io.ReadCloser
	timeout time.Duration
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	// left is what is left of the timeout, and got how many bytes have come in it.
	left time.Duration
	got  int
	// end ends the body whatever comes.
	end *time.Timer
}

func (b *timedBody) Read(p []byte) (int, error) {
	if b.left <= 0 || b.got >= leastProgress {
		b.left, b.got = b.timeout, 0
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(b.left, func() { b.cancel(fault.ErrTimeout) })
	} else {
		b.timer.Reset(b.left)
	}
	began := time.Now()
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	b.got += n
	b.left = max(b.left-time.Since(began), 1)
	if err != nil && !eof(err) {
		err = fleet.CauseOf(b.ctx, err)
	}
	return n, err
}

func (b *timedBody) Close() error {
	b.cancel(nil)
	b.end.Stop()
	return b.ReadCloser.Close()
}

// readObject reads one object to its end.
func readObject(a memberResponse, held *fleet.Holding) ([]byte, *fault.Fault) {
	body := new(bytes.Buffer)
	failed := readInto(body, a, held)
	return body.Bytes(), failed
}

// readInto reads one object to its end, into an empty buffer. The caller forgets what it holds.
func readInto(body *bytes.Buffer, a memberResponse, held *fleet.Holding) *fault.Fault {
	defer a.response.Body.Close()
	// Its length is what a member says, and believed as far as it costs little.
	body.Grow(int(min(max(a.response.ContentLength, 4<<10), maxBorrowed)) + bytes.MinRead)
	_, err := body.ReadFrom((&fleet.Allowance{Limit: maxObject, Holding: held}).Reader(a.response.Body))
	if err != nil {
		return fault.Of(a.member.Name(), fmt.Errorf("its answer broke off: %w", err))
	}
	return nil
}

// bodies are for objects that are read and passed on.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxBorrowed is the largest of them that is kept.
const maxBorrowed = 64 << 10

func giveBack(body *bytes.Buffer) {
	if body.Cap() <= 2*maxBorrowed {
		body.Reset()
		bodies.Put(body)
	}
}
