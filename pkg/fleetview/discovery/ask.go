package discovery

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/catalog"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// errNotAsked is of members that could not be asked within MaxAsking.
var errNotAsked = errors.New("others took so long that it was not asked: ask again")

// A question is what is asked of members, and known for a while.
type question struct {
	name string
	// limit is how many bytes the parts of an answer may have together.
	limit int64
	fetch func(context.Context, *Discovery, fleet.Member, *fleet.Allowance) ([]part, error)
	// parse makes a content of the parts, and counts what it holds.
	parse func([]part, *catalog.Budget) (any, error)
}

// The questions, and the type of the answer's content.
var (
	askServed  = question{"served", MaxServed, fetchServed, parseServed}                     // served
	askIndex   = question{"/openapi/v3", MaxIndex, fetchOne("/openapi/v3"), parseIndex}      // map[string]string
	askSwagger = question{"/openapi/v2", MaxDocument, fetchOne("/openapi/v2"), parseSwagger} // []byte
)

// keyOf is a question of a user to a member.
func keyOf(view fleet.View, member fleet.Member, q question) string {
	return strings.Join([]string{member.UID(), member.Name(), view.User, q.name}, "\x00")
}

// start asks a member of which this is known. The channel gets the answer.
func (d *Discovery) start(ctx context.Context, view fleet.View, member fleet.Member, q question, known answer) <-chan singleflight.Result {
	key := keyOf(view, member, q)
	// The answer is for all who wait for it: none of them may cancel it.
	ctx = context.WithoutCancel(ctx)
	return d.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, view.Timeout, fault.ErrTimeout)
		defer cancel()
		a := d.load(ctx, view, member, q, known)
		stored := a
		stored.value = nil
		d.answers.Put(key, stored, 1)
		return a, nil
	})
}

// load asks a member. If it does not answer, the former answer stays, but not if it
// refuses the user.
func (d *Discovery) load(ctx context.Context, view fleet.View, member fleet.Member, q question, former answer) answer {
	began := d.now()
	allowed := &fleet.Allowance{Limit: q.limit, Holding: d.Held.Begin(view.User)}
	defer allowed.Holding.Forget()
	parts, err := q.fetch(ctx, d, member, allowed)
	if err == nil {
		content := digestOf(q.name, parts)
		value, ok := d.contents.Get(content)
		if !ok {
			value, err = d.parse(ctx, q, content, parts)
		}
		if err == nil {
			return answer{content: content, value: value, at: began}
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if isForbidden(err) {
		former = answer{}
	}
	former.err, former.tried = err, d.now()
	return former
}

// parse parses an answer when it is its turn, and keeps the content.
func (d *Discovery) parse(ctx context.Context, q question, content digest, parts []part) (any, error) {
	done, err := turn(ctx, d.turns)
	if err != nil {
		return nil, err
	}
	defer done()
	budget := &catalog.Budget{Context: ctx}
	value, err := q.parse(parts, budget)
	if err != nil {
		return nil, err
	}
	d.contents.Put(content, value, budget.Held)
	return value, nil
}

// ask asks members of which no answer is known that is not older than fresh, fleet.MaxAsked at a
// time, and returns the answers of all in their order. An answer without content and
// error has not come before the client went away. After MaxAsking no more members are begun: those that
// were not asked come first the next time.
func (d *Discovery) ask(ctx context.Context, view fleet.View, members []fleet.Member, q question, fresh time.Duration) []answer {
	answers := make([]answer, len(members))
	var due []int
	for i, member := range members {
		answers[i] = d.lookup(keyOf(view, member, q))
		if d.due(answers[i], fresh) {
			due = append(due, i)
		}
	}
	slices.SortStableFunc(due, func(i, j int) int { return answers[i].tried.Compare(answers[j].tried) })
	type arrival struct {
		i      int
		answer answer
	}
	arrivals := make(chan arrival, len(due))
	enough := time.NewTimer(MaxAsking)
	defer enough.Stop()
	begun, last := 0, len(due)
	for ended := 0; ended < last; {
		for ; begun < last && begun-ended < fleet.MaxAsked; begun++ {
			i := due[begun]
			flight := d.start(ctx, view, members[i], q, answers[i])
			go func() { arrivals <- arrival{i, (<-flight).Val.(answer)} }()
		}
		select {
		case a := <-arrivals:
			answers[a.i] = a.answer
			ended++
		case <-enough.C:
			last = begun
		case <-ctx.Done():
			return answers
		}
	}
	for _, i := range due[last:] {
		answers[i].err = errNotAsked
	}
	return answers
}

// isForbidden reports whether a member refused the user.
func isForbidden(err error) bool {
	f := new(fault.Fault)
	return errors.As(err, &f) && (f.Code == http.StatusUnauthorized || f.Code == http.StatusForbidden)
}
