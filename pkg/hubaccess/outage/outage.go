package outage

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
)

const (
	// askTimeout is how long a question that has a past answer waits for the hub
	// before the hub itself is probed; probeTimeout is how long a probe takes at
	// most, and probeInterval the time between two probes of a hub that is away. A hub
	// that needs seconds for an answer is slow, and not away.
	askTimeout    = 2 * time.Second
	probeTimeout  = 6 * time.Second
	probeInterval = time.Second
	// endsAfter is how many probes in a row end an outage: a hub that answers now and then
	// does not change the way of every request each time.
	endsAfter = 3
	// maxPast is how many bytes of past answers are kept, and maxForeign how many
	// of those about tokens that the hub does not know.
	maxPast    = 32 << 20
	maxForeign = 4 << 20
)

// ReviewTimeout bounds a question to the hub.
const ReviewTimeout = 10 * time.Second

var (
	// ErrUnreachable is the error of a question that the hub could not be asked.
	ErrUnreachable = errors.New("the hub's kube-apiserver could not be asked")
	// ErrNotForUs is the error of a token that the hub knows and does not take: the hub has answered.
	ErrNotForUs = errors.New("the token is one of the hub's, but has expired, was revoked or is for another audience")
)

// Grace lets the hub's past answers stand while the hub cannot be asked: it cannot
// have changed its mind. The same question must have been answered within the grace.
// Neither one failed question nor a slow one is an outage: the hub must fail a probe
// of the Grace's own, so that no client brings one about by what it sends.
type Grace struct {
	grace time.Duration
	probe func(context.Context) error
	gauge prometheus.Gauge
	count prometheus.Counter
	past  *pastAnswers
	// foreign are tokens that the hub does not know. They are apart because
	// anybody can make some.
	foreign *pastAnswers
	began   chan struct{}

	mu      sync.Mutex
	since   time.Time     // zero while the hub answers
	good    int           // probes in a row, in an outage
	probing chan struct{} // closed when the probe that is under way has ended; nil without one
	verdict chan struct{} // the probing of the last one that has not been given up
}

// New does no I/O. A grace of 0 means that past answers never stand. gauge is 1
// in an outage, and answers counts the past answers that stood.
func New(hub kubernetes.Interface, grace time.Duration, gauge prometheus.Gauge, answers prometheus.Counter) *Grace {
	return &Grace{grace: grace, gauge: gauge, count: answers, past: newPastAnswers(maxPast), foreign: newPastAnswers(maxForeign), began: make(chan struct{}, 1),
		probe: func(ctx context.Context) error {
			_, err := hub.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user.Anonymous, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/livez", Verb: "get"}}}, metav1.CreateOptions{})
			return err
		}}
}

// IsUnreachable reports whether an error of a client means that the hub could not
// be asked, and not that it refused to answer.
func IsUnreachable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return status.Status().Code >= 500 || status.Status().Code == 429
}

// Run watches out for the end of outages until ctx is done.
func (o *Grace) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.began:
		}
		for o.look(ctx) {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(probeInterval):
			}
		}
	}
}

// look asks the hub something, and reports whether there is an outage. Those who look at the
// same time share one probe.
func (o *Grace) look(ctx context.Context) bool {
	for ctx.Err() == nil {
		o.mu.Lock()
		probing := o.probing
		if probing == nil {
			o.probing = make(chan struct{})
			o.mu.Unlock()
			o.lookNow(ctx)
			break
		}
		o.mu.Unlock()
		select {
		case <-probing:
			if o.mu.Lock(); o.verdict == probing {
				o.mu.Unlock()
				return !o.away().IsZero()
			}
			o.mu.Unlock() // who probed has gone away
		case <-ctx.Done():
		}
	}
	return !o.away().IsZero()
}

// lookNow is look for the one who probes.
func (o *Grace) lookNow(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := o.probe(limited)
	away := err != nil && IsUnreachable(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		close(o.probing)
		o.probing = nil
	}()
	if ctx.Err() != nil {
		return // nothing is known
	}
	o.verdict = o.probing
	switch {
	case away && o.since.IsZero():
		o.since = time.Now()
		o.gauge.Set(1)
		klog.FromContext(ctx).Error(err, "The hub cannot be asked; requests that it allowed lately go on", "grace", o.grace)
		select {
		case o.began <- struct{}{}:
		default:
		}
	case away:
		o.good = 0
	case !o.since.IsZero():
		if o.good++; o.good < endsAfter {
			return
		}
		klog.FromContext(ctx).Info("The hub answers again", "outage", time.Since(o.since).Round(time.Millisecond))
		o.since, o.good = time.Time{}, 0
		o.gauge.Set(0)
	}
}

// away is since when there is an outage; zero if there is none.
func (o *Grace) away() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since
}

// answer is what the hub said to a question.
type answer struct {
	value any // with yes
	yes   bool
	err   error
}

// recall, remember and forget are for answers that may stand in.
func (o *Grace) recall(key [sha256.Size]byte) (value any, ok bool) {
	if value, ok = o.past.get(key, o.grace); !ok {
		value, ok = o.foreign.get(key, o.grace)
	}
	return value, ok
}

func (o *Grace) remember(key [sha256.Size]byte, value any, expiry time.Time) {
	into, other := o.past, o.foreign
	if response, ok := value.(*authenticator.Response); ok && response == nil {
		into, other = other, into
	}
	into.put(key, value, expiry)
	other.drop(key)
}

func (o *Grace) forget(key [sha256.Size]byte) {
	o.past.drop(key)
	o.foreign.drop(key)
}

// decide asks the hub, and remembers a yes until expiry, if that is not zero. If
// the hub cannot be asked, a yes of the past stands in.
func (o *Grace) decide(ctx context.Context, key [sha256.Size]byte, expiry time.Time, ask func(context.Context) answer) answer {
	if o.grace <= 0 {
		return ask(ctx)
	}
	stand, known := o.recall(key)
	if known && !o.away().IsZero() {
		return o.use(ctx, stand)
	}
	var said answer
	lost := false
	if known {
		said, lost = o.askOrGiveUp(ctx, ask)
	} else {
		said = ask(ctx)
	}
	switch {
	case lost:
		return o.use(ctx, stand)
	case said.yes:
		o.remember(key, said.value, expiry)
	case ctx.Err() != nil:
	case said.err == nil || errors.Is(said.err, ErrNotForUs):
		o.forget(key)
	case known && errors.Is(said.err, ErrUnreachable) && o.look(ctx):
		return o.use(ctx, stand)
	}
	return said
}

// askOrGiveUp gives up a question if the hub cannot be asked anything.
func (o *Grace) askOrGiveUp(ctx context.Context, ask func(context.Context) answer) (said answer, lost bool) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan answer, 1)
	go func() { done <- ask(asking) }()
	timer := time.NewTimer(askTimeout)
	defer timer.Stop()
	select {
	case said = <-done:
		return said, false
	case <-timer.C:
	}
	if o.look(ctx) {
		return answer{}, true
	}
	return <-done, false
}

// use lets a yes of the past stand in.
func (o *Grace) use(ctx context.Context, value any) answer {
	o.count.Inc()
	if since := o.away(); !since.IsZero() {
		audit.AddAuditAnnotation(ctx, hubaccess.AnnotationPrefix+"hub-outage", "allowed by what the hub decided before "+since.UTC().Format(time.RFC3339)+", since when it cannot be asked")
	}
	return answer{value: value, yes: true}
}

// Tokens lets stand whose token it is, until the token expires, and that the hub
// does not know a token.
func (o *Grace) Tokens(inner authenticator.Token) authenticator.Token {
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		said := o.decide(ctx, sha256.Sum256([]byte("token\x00"+token)), expiryOf(token), func(ctx context.Context) answer {
			response, ok, err := inner.AuthenticateToken(ctx, token)
			if !ok {
				response = nil
			}
			return answer{value: response, yes: err == nil, err: err}
		})
		if !said.yes {
			return nil, false, said.err
		}
		response := said.value.(*authenticator.Response)
		return response, response != nil, nil
	})
}

// Permissions lets permissions stand.
func (o *Grace) Permissions(inner authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		said := o.decide(ctx, hubaccess.KeyOfQuestion(a), time.Time{}, func(ctx context.Context) answer {
			ctx, cancel := context.WithTimeout(ctx, ReviewTimeout)
			defer cancel()
			d, reason, err := inner.Authorize(ctx, a)
			if err != nil && IsUnreachable(err) {
				err = errors.Join(ErrUnreachable, err)
			}
			return answer{value: decided{d, reason}, yes: d == authorizer.DecisionAllow && err == nil, err: err}
		})
		was := said.value.(decided)
		return was.decision, was.reason, said.err
	})
}

// expiryOf is when a JWT ends that the hub has verified; zero for other tokens.
func expiryOf(token string) time.Time {
	var claims struct {
		Expiry float64 `json:"exp"`
	}
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(raw, &claims) != nil || claims.Expiry <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expiry), 0)
}
