package list

import (
	"context"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// awaitEvery is the pause before members that an informer's list waits for are asked again.
const awaitEvery = time.Second

// begin asks the members of a wave. The list of an informer waits for those that do not answer,
// unless they may be asked for a later page.
func (l *listing) begin(ctx context.Context, wave []fleet.Member, wait waitLimits) []*memberList {
	for {
		answers := l.askAll(ctx, wave, wait)
		away := l.away(answers)
		if wait.hold > 0 || len(away) == 0 || ctx.Err() != nil {
			return answers
		}
		// Answers that others have begun would break off meanwhile.
		closeAll(answers)
		for len(away) > 0 && waits(ctx, awaitEvery) {
			again := l.askAll(ctx, away, waitLimits{timeout: l.View.Timeout})
			away = l.away(again)
			closeAll(again)
		}
	}
}

// askAll asks members for their lists.
func (l *listing) askAll(ctx context.Context, members []fleet.Member, wait waitLimits) []*memberList {
	requests := make([]fleet.Question, len(members))
	for i, m := range members {
		requests[i] = l.requestTo(m)
	}
	return gather(ctx, members, wait, func(ctx context.Context, i int) *memberList {
		return l.open(requests[i].Ask(ctx, members[i]), len(members))
	})
}

// away returns the members that the list waits for.
func (l *listing) away(answers []*memberList) (members []fleet.Member) {
	for _, p := range answers {
		if l.awaits(p.Failure) {
			members = append(members, p.Member)
		}
	}
	return members
}

func closeAll(lists []*memberList) {
	for _, p := range lists {
		p.close()
	}
}

// waits reports whether the request goes on after a time.
func waits(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

// requestTo is what one member is asked, which may be the first of next that was begun.
func (l *listing) requestTo(m fleet.Member) fleet.Question {
	query := maps.Clone(l.Query)
	query.Del("continue")
	query.Del("limit")
	if l.limit > 0 {
		query.Set("limit", strconv.Itoa(l.limit-l.page.items))
	}
	if m == l.begun { // with a limit it is asked alone
		query.Set("continue", l.memberToken)
	}
	if l.exact != nil {
		query.Set("resourceVersion", l.exact[m.UID()])
	}
	return fleet.Question{Method: http.MethodGet, Path: l.Path.String(), Query: query, Accept: l.form.Accept, Timeout: l.View.Timeout}
}

// memberList is one member's list, of which the first item was read.
type memberList struct {
	fleet.Answer
	reader *merge.Reader
	// holding is what the reader takes.
	holding *fleet.Holding
	// first is the first item and firstErr how reading it ended.
	first    merge.Item
	firstErr error
	// cancel ends the request.
	cancel context.CancelCauseFunc
	// later has what the member answers, if it has not begun to answer yet.
	later chan *memberList
}

// order is in which part of an answer without a limit the member's turn is: its Warning is
// in the header, or its items come at once, or later.
func (p *memberList) order() int {
	switch {
	case p.Failure != nil:
		return 0
	case p.later != nil:
		return 2
	}
	return 1
}

func (p *memberList) close() {
	if p.later != nil {
		p.cancel(nil)
		go func() { (<-p.later).close() }()
		return
	}
	if p.Response != nil {
		_ = p.Response.Body.Close() // it was read as far as it is wanted
	}
	if p.holding != nil {
		p.holding.Forget()
	}
	if p.cancel != nil {
		p.cancel(nil)
	}
}

// open begins to read an answer of a wave of so many. It may go on when the next wave has begun.
func (l *listing) open(a fleet.Answer, wide int) *memberList {
	p := &memberList{Answer: a}
	if p.Failure != nil {
		return p
	}
	got := p.Response.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(got); err != nil || media != fleet.JSONType {
		p.Failure = &fault.Fault{Cluster: p.Member.Name(), Reason: fmt.Sprintf("its answer is %q instead of %q", got, fleet.JSONType)}
		return p
	}
	body := &ahead{ReadCloser: p.Response.Body}
	p.reader, p.holding = merge.NewReader(body), l.lister.held.Begin(l.View.User)
	p.reader.Grow = func(size int) error { return p.holding.Grow(int64(size)) }
	if p.first, p.firstErr = p.reader.Next(); p.firstErr == nil {
		body.begin(min(aheadOfMember, aheadBytes/wide))
	}
	return p
}

// waitLimits bounds the wait for members.
type waitLimits struct {
	// timeout is how long one may take to begin its answer, up to its first item.
	timeout time.Duration
	// hold is how long to wait for the others when one has answered; 0 is until each has
	// answered or its timeout is over.
	hold time.Duration
	// begun says that others have answered before.
	begun bool
	// late says that those that are not waited for go on: their lists come later.
	late bool
}

// asOne is how many members that are asked together may take as long as one before the first
// answers. To each that nobody has used lately there are handshakes, of which all end at the same
// moment if they share few processors: passed over together, they would be asked twice, and those
// that are asked next would stand behind what they have begun.
const asOne = 16

// alarm rings when those of n members that have not answered are late; never until one has.
func (w waitLimits) alarm(n int) <-chan time.Time {
	if !w.begun {
		return nil
	}
	return time.After(w.hold * time.Duration(1+n/asOne))
}

// gather asks members, some at a time, and returns what they answer in the same order.
func gather(ctx context.Context, members []fleet.Member, wait waitLimits, ask func(ctx context.Context, i int) *memberList) []*memberList {
	type numbered struct {
		i int
		*memberList
	}
	parts := make([]*memberList, len(members))
	cancels := make([]context.CancelCauseFunc, len(members))
	done := make(chan numbered, len(members))
	turns := make(chan struct{}, fleet.MaxAsked)
	for i := range members {
		asking, cancel := context.WithCancelCause(ctx)
		cancels[i] = cancel
		go func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			timer := time.AfterFunc(wait.timeout, func() { cancel(fault.ErrTimeout) })
			defer timer.Stop()
			done <- numbered{i, ask(asking, i)}
		}()
	}
	late := wait.alarm(len(members))
	waiting := len(members)
	for given := false; waiting > 0 && !given; {
		select {
		case answered := <-done:
			waiting--
			answered.cancel = cancels[answered.i]
			parts[answered.i] = answered.memberList
			if wait.hold > 0 && answered.Failure == nil {
				late = time.After(wait.hold)
			}
		case <-late:
			given = true
		}
	}
	for i, p := range parts {
		if p == nil && wait.late {
			parts[i] = &memberList{Answer: fleet.Answer{Member: members[i]}, cancel: cancels[i], later: make(chan *memberList, 1)}
		} else if p == nil {
			cancels[i](nil)
			parts[i] = &memberList{Answer: fleet.Answer{Member: members[i], Failure: &fault.Fault{Cluster: members[i].Name(), Reason: "no answer yet"}}}
		}
	}
	if waiting > 0 {
		late := slices.Clone(parts) // the caller sorts its own
		go func() {
			for range waiting {
				answered := <-done
				answered.cancel = cancels[answered.i]
				if wait.late {
					late[answered.i].later <- answered.memberList
				} else {
					answered.close()
				}
			}
		}()
	}
	return parts
}

const (
	// aheadBytes are read of the answers to one request before it is their turn, and
	// aheadOfMember of one of them.
	aheadBytes    = 4 << 20
	aheadOfMember = 1 << 20
	// aheadRead is read at a time.
	aheadRead = 32 << 10
)

// ahead is the body of a member's answer. Once it was begun it reads on in the background
// until somebody reads it, so that members send while another one's turn is, and what is
// under way from all of them arrives at the same time.
type ahead struct {
	io.ReadCloser
	// buffer is what was read, of which buffer[at:] was not used yet, and err how that
	// ended. While done is not closed they are the background's.
	buffer []byte
	at     int
	err    error
	// done is nil before begin.
	done chan struct{}
	stop atomic.Bool
}

// begin reads up to so many bytes.
func (a *ahead) begin(most int) {
	if most < aheadRead {
		return
	}
	a.done = make(chan struct{})
	go func() {
		defer close(a.done)
		for len(a.buffer) < most && a.err == nil && !a.stop.Load() {
			if cap(a.buffer)-len(a.buffer) < aheadRead {
				a.buffer = append(make([]byte, 0, min(most, 2*cap(a.buffer)+aheadRead)), a.buffer...)
			}
			var n int
			n, a.err = a.ReadCloser.Read(a.buffer[len(a.buffer):cap(a.buffer)])
			a.buffer = a.buffer[:len(a.buffer)+n]
		}
	}()
}

// Read returns what was read ahead, and then what comes.
func (a *ahead) Read(p []byte) (int, error) {
	if a.done == nil {
		return a.ReadCloser.Read(p)
	}
	a.stop.Store(true)
	<-a.done
	if a.at < len(a.buffer) {
		n := copy(p, a.buffer[a.at:])
		if a.at += n; a.at == len(a.buffer) {
			a.buffer, a.at = nil, 0
		}
		return n, nil
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.ReadCloser.Read(p)
}
