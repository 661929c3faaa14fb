package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

const (
	// MaxAsked bounds how many members are asked at a time for one request: by AskAll, and for a list by
	// gather.go of package list.
	MaxAsked = 64
	// JSONType is the type of JSON.
	JSONType = "application/json"
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

// Answer is how one member answered.
type Answer struct {
	Member Member
	// Response is nil if there is a Failure. The caller closes its body.
	Response *http.Response
	Failure  *fault.Fault
}

// Question is what members are asked.
type Question struct {
	Method  string
	Path    string
	Query   url.Values
	Accept  string
	Timeout time.Duration
	// Body is that of a review, which is a POST.
	Body        []byte
	ContentType string
}

// Ask sends a request to one member. Its answer must begin within the request's timeout,
// and go on: see timedBody.
func (q Question) Ask(ctx context.Context, m Member) Answer {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(q.Timeout, func() { cancel(fault.ErrTimeout) })
	defer timer.Stop()
	response, err := q.send(ctx, m)
	if err != nil {
		err = CauseOf(ctx, err)
		cancel(nil)
		return Answer{Member: m, Failure: fault.Of(m.Name(), err)}
	}
	end := time.AfterFunc(maxTime, func() { cancel(errEndless) })
	response.Body = &timedBody{ReadCloser: response.Body, timeout: q.Timeout, ctx: ctx, cancel: cancel, end: end}
	if response.StatusCode != http.StatusOK && (q.Body == nil || response.StatusCode != http.StatusCreated) {
		defer response.Body.Close()
		return Answer{Member: m, Failure: fault.Read(m.Name(), response)}
	}
	return Answer{Member: m, Response: response}
}

// send sends the request.
func (q Question) send(ctx context.Context, m Member) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, q.Method, q.Path, bytes.NewReader(q.Body)) // without a body that is http.NoBody
	if err != nil {
		return nil, err
	}
	if q.ContentType != "" {
		r.Header.Set("Content-Type", q.ContentType)
	}
	r.URL.RawQuery = q.Query.Encode()
	r.Header.Set("Accept", q.Accept)
	return m.RoundTrip(r)
}

// AskAll asks members, some at a time, and returns their answers in the same order.
func (q Question) AskAll(ctx context.Context, members []Member) []Answer {
	if len(members) == 1 {
		return []Answer{q.Ask(ctx, members[0])}
	}
	answers := make([]Answer, len(members))
	turns := make(chan struct{}, MaxAsked)
	var group sync.WaitGroup
	for i, m := range members {
		turns <- struct{}{}
		group.Go(func() {
			answers[i] = q.Ask(ctx, m)
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
	if err != nil && !errors.Is(err, io.EOF) {
		err = CauseOf(b.ctx, err)
	}
	return n, err
}

func (b *timedBody) Close() error {
	b.cancel(nil)
	b.end.Stop()
	return b.ReadCloser.Close()
}

// Read reads one object to its end.
func (a Answer) Read(held *Holding) ([]byte, *fault.Fault) {
	body := new(bytes.Buffer)
	failed := a.ReadInto(body, held)
	return body.Bytes(), failed
}

// ReadInto reads one object to its end, into an empty buffer. The caller forgets what it holds.
func (a Answer) ReadInto(body *bytes.Buffer, held *Holding) *fault.Fault {
	defer a.Response.Body.Close()
	// Its length is what a member says, and believed as far as it costs little.
	body.Grow(int(min(max(a.Response.ContentLength, 4<<10), 64<<10)) + bytes.MinRead)
	_, err := body.ReadFrom((&Allowance{Limit: maxObject, Holding: held}).Reader(a.Response.Body))
	if err != nil {
		return fault.Of(a.Member.Name(), fmt.Errorf("its answer broke off: %w", err))
	}
	return nil
}

// CauseOf returns why a request or a read was canceled, if it was, and else err.
func CauseOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// SomeOf names as many as Warnings do, and counts the others.
func SomeOf(names []string) string {
	if more := len(names) - fault.MaxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:fault.MaxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
