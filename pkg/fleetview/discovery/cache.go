package discovery

import (
	"context"
	"crypto/sha256"
	"runtime"
	"time"

	"golang.org/x/sync/singleflight"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

const (
	// FreshFor is how long a member's answer is used without asking again, and MissingFor how
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

// due reports whether a member is to be asked again, of which this is known.
func (d *Discovery) due(known answer, fresh time.Duration) bool {
	now := d.now()
	return (!known.known() || now.Sub(known.at) > fresh) && (known.err == nil || now.Sub(known.tried) >= FailureFor)
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

// digest tells contents apart.
type digest [sha256.Size]byte
