package discovery

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/catalog"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

const (
	// FreshFor is how long a member's answer is used without asking again, and missingFor how
	// long if the client wants something that is in no answer.
	FreshFor   = time.Minute
	MissingFor = time.Second
	// StaleFor is how old an answer may be that stands in for a member that does not
	// answer.
	StaleFor = 10 * time.Minute
	// FailureFor is how long a member that did not answer is not asked again. Clients ask
	// for discovery in series, and would wait each time.
	FailureFor = 5 * time.Second

	// MaxAsking is how long members are begun to be asked for one request: kubectl waits for
	// 32 s, and the last ones have the view's timeout.
	MaxAsking = 20 * time.Second

	// maxAnswers is how many answers are known; one takes about 300 bytes.
	maxAnswers = 100_000
	// maxContents is how many bytes the contents of answers take. Most members answer the
	// same, which counts once.
	maxContents = 128 << 20
	// maxReaders is how many answers are read at once.
	maxReaders = 64
)

// errNotAsked is of members that could not be asked within maxAsking.
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

// Discovery answers requests about what a view serves. It is safe for concurrent use.
type Discovery struct {
	now      func() time.Time
	flights  singleflight.Group
	answers  *fleet.Sized[string, answer]
	contents *fleet.Sized[digest, any]
	// readers and turns are taken by who reads an answer, and who parses one. large is for
	// what takes much more memory than it has bytes.
	readers, turns, large chan struct{}
	Held                  *fleet.Memory
}

func NewDiscovery() *Discovery {
	return &Discovery{
		now:      time.Now,
		answers:  fleet.NewSized[string, answer](maxAnswers),
		contents: fleet.NewSized[digest, any](maxContents),
		readers:  make(chan struct{}, maxReaders),
		turns:    make(chan struct{}, runtime.GOMAXPROCS(0)),
		large:    make(chan struct{}, 1),
		Held:     fleet.NewMemory(),
	}
}

// answer is a member's to a question.
type answer struct {
	content digest
	value   any
	at      time.Time // when the content came; zero if none is known
	err     error     // why the last attempt was no success
	tried   time.Time // when that was
}

// known reports whether the answer has a content.
func (a answer) known() bool { return !a.at.IsZero() }

// lookup returns what is known of a question without asking.
func (d *Discovery) lookup(key string) answer {
	a, ok := d.answers.Get(key)
	if !ok || !a.known() {
		return a
	}
	if a.value, ok = d.contents.Get(a.content); !ok || d.now().Sub(a.at) > StaleFor {
		return answer{err: a.err, tried: a.tried}
	}
	return a
}

// keyOf is a question of a user to a member.
func keyOf(view fleet.View, member fleet.Member, q question) string {
	return strings.Join([]string{member.UID(), member.Name(), view.User, q.name}, "\x00")
}

// due reports whether a member is to be asked again, of which this is known.
func (d *Discovery) due(known answer, fresh time.Duration) bool {
	now := d.now()
	return (!known.known() || now.Sub(known.at) > fresh) && (known.err == nil || now.Sub(known.tried) >= FailureFor)
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

// turn waits for a turn. The caller ends it.
func turn(ctx context.Context, turns chan struct{}) (done func(), err error) {
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ask asks members of which no answer is known that is not older than fresh, maxBegun at a
// time, and returns the answers of all in their order. An answer without content and
// error has not come before the client went away. After maxAsking no more members are begun: those that
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
