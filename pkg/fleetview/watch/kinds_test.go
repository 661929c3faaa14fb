package watch

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// eventOfSecret is the whole watch of a cluster that sends what it was not asked for.
const eventOfSecret = `{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"stolen","namespace":"ns","uid":"u","resourceVersion":"900"}}}` + "\n"

func isConfigMap(of metav1.TypeMeta) bool { return of.Kind == "ConfigMap" }

// objectEvents are the events since it was asked last but for the initial bookmark.
func objectEvents(c *client) (events []string) {
	for _, e := range c.events() {
		if !isInitialEnd(e) {
			events = append(events, e)
		}
	}
	return events
}

// late is a cluster whose answers take a while to begin.
type late struct {
	*cluster
	by time.Duration
}

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(l.by)
	return l.cluster.RoundTrip(r)
}

// TestMemberOfAnotherKind has a member that sends an object of another kind, before the others
// have said theirs or later, to a new watch or to one that goes on.
func TestMemberOfAnotherKind(t *testing.T) {
	for name, wants := range map[string]func(*Options){
		"after a list": same,
		"at first":     func(o *Options) { o.SendInitialEvents = new(true) },
		"resumed":      nil,
	} {
		for _, objects := range [][]string{{"x"}, nil} {
			synctest.Test(t, func(t *testing.T) {
				checkAnotherKind(t, fmt.Sprintf("%s, beside %d objects", name, len(objects)), wants, newCluster("good", objects...))
			})
		}
	}
}

func checkAnotherKind(t *testing.T, what string, wants func(*Options), good *cluster) {
	evil := newCluster("evil")
	evil.raw, evil.initial = eventOfSecret, allInitial
	f := newFixture(t, evil, good)
	var want []string
	for name := range good.objects {
		want = append(want, "ADDED good/"+name)
	}
	if wants == nil {
		at := f.listed()
		wants, want = func(o *Options) { o.ResourceVersion = at.String() }, nil
	}
	c := f.watch(func(o *Options) {
		wants(o)
		o.Likely, o.Now = isConfigMap, []Member{evil, late{good, 3 * time.Second}}
	})
	defer c.stop()
	time.Sleep(20 * time.Second)
	diff(t, what+": at first", want, objectEvents(c))
	good.set("y")
	diff(t, what+": an event of the other", []string{"ADDED good/y"}, c.events())
	time.Sleep(2 * maxDoubt)
	diff(t, what+": asked again", nil, c.events())
	evil.with(func() { evil.raw = "" })
	evil.set("z")
	time.Sleep(2 * maxBackoff)
	diff(t, what+": when it is good again", []string{"ADDED evil/z"}, c.events())
}

// TestUnlikelyKind watches objects whose kind is not called like their resource. They come as
// soon as all clusters have said what theirs are, or have failed; and after maxDoubt if one does
// neither.
func TestUnlikelyKind(t *testing.T) {
	for name, test := range map[string]struct {
		set  func(third *cluster)
		wait time.Duration
	}{
		"all answer":        {func(*cluster) {}, 0},
		"one refuses":       {func(c *cluster) { c.refuse = http.StatusForbidden }, 0},
		"one is frozen":     {func(c *cluster) { c.frozen = true }, 5 * time.Second},
		"one says nothing":  {func(c *cluster) { c.noWatch = 0; c.initial = unmarked }, 5 * time.Second},
		"one is of another": {func(c *cluster) { c.raw, c.initial = eventOfSecret, allInitial }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			third := newCluster("third")
			test.set(third)
			c := newFixture(t, third, newCluster("a", "x"), newCluster("b", "x")).watch(func(o *Options) {
				o.SendInitialEvents = new(true)
				o.Likely = func(metav1.TypeMeta) bool { return false }
			})
			defer c.stop()
			time.Sleep(test.wait)
			diff(t, name, []string{"ADDED a/x", "ADDED b/x"}, sorted(objectEvents(c)))
		})
	}
}

// TestUnlikelyKindResumed goes on from a list of such objects, of which only one cluster has
// news.
func TestUnlikelyKindResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b", "x")
		f := newFixture(t, a, b)
		at := f.listed()
		c := f.watch(func(o *Options) {
			o.ResourceVersion, o.Likely = at.String(), func(metav1.TypeMeta) bool { return false }
		})
		defer c.stop()
		a.set("y")
		diff(t, "at once", nil, c.events())
		time.Sleep(maxDoubt)
		diff(t, "after maxDoubt", []string{"ADDED a/y"}, c.events())
		a.set("z")
		diff(t, "then", []string{"ADDED a/z"}, c.events())
	})
}

// TestUndecidedMemberLeaves has a member leave whose object waits, beside one that has no news.
// That it leaves is not kept waiting.
func TestUndecidedMemberLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evil, quiet := newCluster("evil"), newCluster("quiet")
		evil.raw = eventOfSecret
		f := newFixture(t, evil, quiet)
		at := f.listed()
		c := f.watch(func(o *Options) { o.ResourceVersion, o.Likely = at.String(), isConfigMap })
		defer c.stop()
		time.Sleep(time.Second)
		f.set(quiet)
		time.Sleep(2 * membersEvery)
		diff(t, "when it has left", []string{encoding.Failed}, c.events())
	})
}
