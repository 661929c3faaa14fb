package authz

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/lru"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/fairqueue"
)

// decisionTTL is how long the hub's decisions are believed.
//
// A right that was taken away is gone after at most this time, and for open streams after
// this and --revalidate-streams together: within ten seconds.
const decisionTTL = 5 * time.Second

const (
	// listTimeout bounds the work on one list.
	listTimeout = 30 * time.Second
	// maxDecisions is how many questions of lists the hub is asked at a time, of all users
	// together: more would wait at a small hub, where those about single requests wait with
	// them. 500 questions take 0.6 s at a hub that is 20 ms away.
	maxDecisions = 16
	// longList is how many names make a list long. longDenialTTL is how long the hub's word that
	// a user may not is believed in a long list: a next try goes on where one ended in listTimeout.
	longList      = 500
	longDenialTTL = time.Minute
	// maxRemembered is how many answers are remembered, of some 250 bytes each. A user who asks so
	// fast that those of others are forgotten within longDenialTTL has a hub that answers
	// others as fast.
	maxRemembered = 1 << 17
)

// ErrUnfinished is the error of a list for which there was not enough time to ask the hub. Its
// answers are remembered, and the next try goes on from there.
var ErrUnfinished = errors.New("the hub has not answered all questions in time")

// lists finds out which of many names a user has a right to. That is a question for each name.
type lists struct {
	authorizer authorizer.Authorizer    // caches nothing
	turns      *fairqueue.Queue[string] // by user
	asking     singleflight.Group
	answers    *lru.Cache // of type answer, by question
}

// answer is what the hub said to a question, and when it was asked.
type answer struct {
	allowed bool
	asked   time.Time
}

func newLists(uncached authorizer.Authorizer) *lists {
	return &lists{authorizer: uncached, turns: fairqueue.New[string](maxDecisions, math.MaxInt, math.MaxInt), answers: lru.New(maxRemembered)}
}

// questions are about names, for one user.
type questions struct {
	about func(name string) authorizer.Attributes
	user  string
	// key names the user, with groups and extra, and the right.
	key string
	// grantTTL and denialTTL are how old an answer may be.
	grantTTL, denialTTL time.Duration
}

func questionsOf(u user.Info, grantTTL time.Duration, about func(name string) authorizer.Attributes) questions {
	key := hubaccess.KeyOfQuestion(about(""))
	return questions{about: about, user: u.GetName(), key: string(key[:]), grantTTL: grantTTL, denialTTL: decisionTTL}
}

// withListTimeout bounds the work on one list.
func withListTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, listTimeout, ErrUnfinished)
}

// filter returns the names that the hub allows, and when it was first asked about one of them.
func (l *lists) filter(ctx context.Context, names []string, q questions) (allowed []string, asked time.Time, err error) {
	answers := make([]answer, len(names))
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(maxDecisions)
	for i, name := range names {
		known, ok := l.known(q, name)
		if ok {
			answers[i] = known
			continue
		}
		group.Go(func() (err error) {
			answers[i], err = l.ask(asking, q, name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return nil, time.Time{}, err
	}
	allowed, asked = make([]string, 0, len(names)), time.Now()
	for i, name := range names {
		if answers[i].allowed {
			allowed, asked = append(allowed, name), earlier(asked, answers[i].asked)
		}
	}
	return allowed, asked, nil
}

// known returns an answer that is not too old.
func (l *lists) known(q questions, name string) (answer, bool) {
	known, ok := l.answers.Get(q.key + name)
	if !ok {
		return answer{}, false
	}
	was, ttl := known.(answer), q.denialTTL
	if was.allowed {
		ttl = q.grantTTL
	}
	return was, time.Since(was.asked) < ttl
}

// ask asks the hub when it is the user's turn, unless another list has asked meanwhile.
func (l *lists) ask(ctx context.Context, q questions, name string) (answer, error) {
	release, err := l.turns.Acquire(ctx, q.user)
	if err != nil {
		return answer{}, err
	}
	if err := ctx.Err(); err != nil {
		release()
		return answer{}, err
	}
	done := l.asking.DoChan(q.key+name, func() (any, error) {
		if known, ok := l.known(q, name); ok {
			return known, nil
		}
		now := time.Now()
		decision, _, err := l.authorizer.Authorize(context.WithoutCancel(ctx), q.about(name))
		if err != nil {
			return answer{}, err
		}
		said := answer{allowed: decision == authorizer.DecisionAllow, asked: now}
		l.answers.Add(q.key+name, said)
		return said, nil
	})
	select {
	case said := <-done:
		release()
		return said.Val.(answer), said.Err
	case <-ctx.Done():
		// The hub works on a question also when nobody waits for the answer any more, and the
		// question keeps its turn: lists that begin and end would send more of them than there are
		// turns. Its answer is for the next list.
		go func() {
			<-done
			release()
		}()
		return answer{}, ctx.Err()
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
