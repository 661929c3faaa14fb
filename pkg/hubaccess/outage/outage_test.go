package outage

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
)

// oracle answers questions of an Outage's tests.
type oracle struct {
	mu   sync.Mutex
	down error         // what every question ends with
	slow time.Duration // how long every question takes
	no   bool          // refuses what is asked
}

func (h *oracle) set(change func(h *oracle)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h)
}

func (h *oracle) ask(ctx context.Context) error {
	_, err := h.answer(ctx)
	return err
}

func (h *oracle) answer(ctx context.Context) (no bool, err error) {
	h.mu.Lock()
	no, err, slow := h.no, h.down, h.slow
	h.mu.Unlock()
	select {
	case <-time.After(slow):
		return no, err
	case <-ctx.Done():
		return no, ctx.Err()
	}
}

func (h *oracle) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ReviewTimeout)
	defer cancel()
	no, err := h.answer(ctx)
	if err != nil {
		return nil, false, ErrUnreachable
	}
	if no {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: "user of " + token}}, true, nil
}

func (h *oracle) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	no, err := h.answer(ctx)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	if no {
		return authorizer.DecisionNoOpinion, "no rule", nil
	}
	return authorizer.DecisionAllow, "a rule", nil
}

// lost runs test beside an Outage's Run.
func lost(t *testing.T, test func(t *testing.T, hub *oracle, o *Grace)) {
	synctest.Test(t, func(t *testing.T) {
		hub := &oracle{}
		o := New(nil, 10*time.Minute, prometheus.NewGauge(prometheus.GaugeOpts{Name: "outage"}), prometheus.NewCounter(prometheus.CounterOpts{Name: "answers"}))
		o.probe = hub.ask
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- o.Run(ctx) }()
		test(t, hub, o)
		stop()
		<-done
	})
}

func jwt(expiry time.Time) string {
	return "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expiry.Unix())) + ".c2ln"
}

func reading(name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name}, Verb: "get", Resource: "clusters", Subresource: "proxy", Name: "cluster1", ResourceRequest: true}
}

var outages = map[string]func(*oracle){
	"refused":     func(h *oracle) { h.down = errors.New("connection refused") },
	"black hole":  func(h *oracle) { h.slow = time.Hour },
	"500":         func(h *oracle) { h.down = apierrors.NewInternalError(errors.New("etcd is gone")) },
	"unavailable": func(h *oracle) { h.down = apierrors.NewServiceUnavailable("starting") },
	"429":         func(h *oracle) { h.down = apierrors.NewTooManyRequests("too many", 1) },
}

// TestOutage has users whom the hub allowed lately go on while it cannot be
// asked, each for as long as the grace lasts, and nobody else.
func TestOutage(t *testing.T) {
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			lost(t, func(t *testing.T, hub *oracle, o *Grace) {
				tokens, permissions := o.Tokens(hub), o.Permissions(authorizer.AuthorizerFunc(hub.Authorize))
				short := jwt(time.Now().Add(5 * time.Minute))
				known := func(token string) bool {
					r, ok, err := tokens.AuthenticateToken(t.Context(), token)
					return ok && err == nil && r.User.GetName() == "user of "+token
				}
				allowed := func(a authorizer.Attributes) bool {
					d, _, _ := permissions.Authorize(t.Context(), a)
					return d == authorizer.DecisionAllow
				}
				for _, token := range []string{"opaque", short} {
					if !known(token) {
						t.Fatalf("%q is not known", token)
					}
				}
				if !allowed(reading("jane")) {
					t.Fatal("jane may not")
				}
				time.Sleep(time.Minute)
				hub.set(begin)
				began := time.Now()
				if !known("opaque") || !allowed(reading("jane")) {
					t.Error("what was allowed is not allowed any more")
				}
				if took := time.Since(began); took > askTimeout+probeTimeout {
					t.Errorf("the first question took %v, want %v at most", took, askTimeout+probeTimeout)
				}
				other := reading("jane")
				other.Verb = "delete"
				bob, elsewhere := reading("bob"), reading("jane")
				elsewhere.Name = "cluster2"
				for what, a := range map[string]authorizer.Attributes{"another user": bob, "another cluster": elsewhere, "another verb": other} {
					if d, _, err := permissions.Authorize(t.Context(), a); d == authorizer.DecisionAllow || err == nil {
						t.Errorf("%s is allowed", what)
					}
				}
				// All that takes no time, once the outage is known.
				if was := time.Now(); !known("opaque") || !known(short) || !allowed(reading("jane")) || time.Since(was) > 0 {
					t.Errorf("known users wait %v in an outage", time.Since(was))
				}
				if got := testutil.ToFloat64(o.gauge); got != 1 {
					t.Errorf("gauge %v in an outage, want 1", got)
				}
				time.Sleep(time.Until(began.Add(4*time.Minute + time.Second)))
				if known(short) {
					t.Error("a token is good beyond its expiry")
				}
				time.Sleep(time.Until(began.Add(8*time.Minute + 59*time.Second)))
				if !known("opaque") || !allowed(reading("jane")) {
					t.Error("the grace ended early")
				}
				time.Sleep(2 * time.Second)
				if known("opaque") || allowed(reading("jane")) {
					t.Error("the grace does not end")
				}
			})
		})
	}
}

// TestOutageEnds has the hub decide again as soon as it can be asked.
func TestOutageEnds(t *testing.T) {
	lost(t, func(t *testing.T, hub *oracle, o *Grace) {
		permissions, a := o.Permissions(authorizer.AuthorizerFunc(hub.Authorize)), reading("jane")
		if d, _, _ := permissions.Authorize(t.Context(), a); d != authorizer.DecisionAllow {
			t.Fatal("not allowed")
		}
		hub.set(outages["refused"])
		if d, _, _ := permissions.Authorize(t.Context(), a); d != authorizer.DecisionAllow {
			t.Error("not allowed in an outage")
		}
		hub.set(func(h *oracle) { h.down, h.no = nil, true })
		time.Sleep(endsAfter*probeInterval + time.Second)
		if d, _, err := permissions.Authorize(t.Context(), a); d == authorizer.DecisionAllow || err != nil {
			t.Errorf("allowed after the hub withdrew it, %v", err)
		}
		// Its refusals do not stand in the next outage.
		hub.set(outages["refused"])
		if d, _, _ := permissions.Authorize(t.Context(), a); d == authorizer.DecisionAllow {
			t.Error("what was withdrawn is allowed in an outage")
		}
		if testutil.ToFloat64(o.gauge) != 0 || testutil.ToFloat64(o.count) != 1 {
			t.Errorf("gauge %v, %v requests; want 0 and 1", testutil.ToFloat64(o.gauge), testutil.ToFloat64(o.count))
		}
	})
}

// TestNoOutage has single questions fail, or take long, while the hub answers
// others: past answers do not stand in then.
func TestNoOutage(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error
		slow    time.Duration
		allowed bool
	}{
		"one question fails":   {err: apierrors.NewInternalError(errors.New("this one"))},
		"one question is slow": {slow: 5 * time.Second, allowed: true},
		"a refusal to answer":  {err: apierrors.NewForbidden(schema.GroupResource{}, "x", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			lost(t, func(t *testing.T, hub *oracle, o *Grace) {
				o.probe = func(context.Context) error { return nil }
				permissions := o.Permissions(authorizer.AuthorizerFunc(hub.Authorize))
				if d, _, _ := permissions.Authorize(t.Context(), reading("jane")); d != authorizer.DecisionAllow {
					t.Fatal("not allowed")
				}
				hub.set(func(h *oracle) { h.down, h.slow = tc.err, tc.slow })
				if d, _, _ := permissions.Authorize(t.Context(), reading("jane")); (d == authorizer.DecisionAllow) != tc.allowed {
					t.Errorf("decision %v, want it allowed: %v", d, tc.allowed)
				}
				if testutil.ToFloat64(o.gauge) != 0 {
					t.Error("an outage")
				}
			})
		})
	}
}

// TestSlowHubIsNotAway has a hub that needs seconds for every answer, and a hundred users who ask
// again and again. It decides by itself, and has no more to do than one probe at a time.
func TestSlowHubIsNotAway(t *testing.T) {
	lost(t, func(t *testing.T, hub *oracle, o *Grace) {
		var probes, most, outages atomic.Int32
		o.probe = func(ctx context.Context) error {
			most.Store(max(most.Load(), probes.Add(1)))
			defer probes.Add(-1)
			return hub.ask(ctx)
		}
		permissions := o.Permissions(authorizer.AuthorizerFunc(hub.Authorize))
		allowed := func(name string) bool {
			d, _, err := permissions.Authorize(t.Context(), reading(name))
			return d == authorizer.DecisionAllow && err == nil
		}
		const users = 100
		for i := range users {
			if !allowed(fmt.Sprint("user ", i)) {
				t.Fatal("not allowed")
			}
		}
		hub.set(func(h *oracle) { h.slow = 2200 * time.Millisecond })
		var all sync.WaitGroup
		end := time.Now().Add(10 * time.Minute)
		for i := range users {
			all.Go(func() {
				for time.Now().Before(end) {
					if !allowed(fmt.Sprint("user ", i)) {
						t.Error("not allowed by a slow hub")
					}
					if !o.away().IsZero() {
						outages.Add(1)
					}
					time.Sleep(time.Second) // in an outage answers take no time
				}
			})
		}
		all.Wait()
		if outages.Load() > 0 || most.Load() != 1 || testutil.ToFloat64(o.count) > 0 {
			t.Errorf("%d answers came in an outage, %v were of the past, and %d probes were under way at a time; want 0, 0 and 1", outages.Load(), testutil.ToFloat64(o.count), most.Load())
		}
	})
}

func TestPastIsBounded(t *testing.T) {
	p := newPastAnswers(100 << 10)
	groups := make([]string, 100)
	for i := range groups {
		groups[i] = strings.Repeat("g", 50)
	}
	for i := range 1000 {
		p.put([32]byte{byte(i), byte(i >> 8)}, &authenticator.Response{User: &user.DefaultInfo{Groups: groups}}, time.Time{})
	}
	if p.bytes > p.limit || p.answers.Len() < 10 {
		t.Errorf("%d bytes in %d answers; want %d bytes at most, in 10 answers at least", p.bytes, p.answers.Len(), p.limit)
	}
	if _, ok := p.get([32]byte{byte(999 & 255), 999 >> 8}, time.Minute); !ok {
		t.Error("the latest is gone")
	}
}

// TestPastAnswersAreOfTheWholeQuestion has a hub allow a list of one object by its authorization
// webhook, and then be away. A list of all objects is another question.
func TestPastAnswersAreOfTheWholeQuestion(t *testing.T) {
	down := apierrors.NewServiceUnavailable("away")
	away := false
	o := &Grace{grace: time.Minute, gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: "outage"}), count: prometheus.NewCounter(prometheus.CounterOpts{Name: "answers"}),
		past: newPastAnswers(maxPast), foreign: newPastAnswers(maxForeign), began: make(chan struct{}, 1), probe: func(context.Context) error { return down }}
	hub := o.Permissions(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		switch selected, _ := a.GetFieldSelector(); {
		case away:
			return authorizer.DecisionNoOpinion, "", down
		case len(selected) > 0:
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "", nil
	}))
	all := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "jane"}, Verb: "list", ResourceRequest: true, Resource: "sessions"}
	one := all
	one.FieldSelectorRequirements = fields.OneTermEqualSelector("metadata.name", "a").Requirements()
	for _, away = range []bool{false, true} {
		if decision, _, err := hub.Authorize(t.Context(), one); decision != authorizer.DecisionAllow || err != nil {
			t.Errorf("hub away %t, one object: %v, %v; want it to be allowed", away, decision, err)
		}
		if decision, _, _ := hub.Authorize(t.Context(), all); decision == authorizer.DecisionAllow && away {
			t.Error("while the hub is away all objects are allowed, of which it allowed one")
		}
		_, _, _ = hub.Authorize(t.Context(), one) // a refusal forgets nothing else
	}
}

// TestSelectionsAreDifferentQuestions has a value of one selector read like the end of it and
// the beginning of another.
func TestSelectionsAreDifferentQuestions(t *testing.T) {
	question := func(selected fields.Selector) [32]byte {
		return hubaccess.KeyOfQuestion(authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "jane"}, Verb: "list", ResourceRequest: true, Resource: "sessions", FieldSelectorRequirements: selected.Requirements()})
	}
	two := fields.AndSelectors(fields.OneTermEqualSelector("a", "b"), fields.OneTermEqualSelector("c", "d"))
	if one := fields.OneTermEqualSelector("a", "b} {= c d"); question(one) == question(two) {
		t.Errorf("%s and %s are the same question", one, two)
	}
}
