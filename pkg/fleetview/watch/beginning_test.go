package watch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// TestNoStream has members of which none has a part in a stream, and some that have.
func TestNoStream(t *testing.T) {
	const ok, none = 0, -1
	for _, test := range []struct {
		name string
		// a and b are the codes with which the clusters refuse everything, or none if they
		// do not answer.
		a, b int
		more func(*Options)
		want int
		says string
	}{
		{"both accept", ok, ok, same, 200, ""},
		{"one accepts", ok, 403, same, 200, ""},
		{"one accepts, one is away", ok, none, same, 200, ""},
		{"both refuse", 403, 405, same, 403, "a says 403"},
		{"one refuses, one has none", 404, 403, same, 403, "b says 403"},
		{"both have none", 404, 404, same, 404, "a says 404"},
		{"one refuses, one is away", 403, none, same, 503, "no tunnel"},
		{"both are away", none, none, same, 503, "no tunnel"},
		{"one has none, one is away", 404, none, same, 503, "no tunnel"},
		{"fails unless all answer", ok, none, func(o *Options) { o.FailWhenUnreachable = true }, 503, "no tunnel"},
		{"has no such objects, which is an answer", ok, 404, func(o *Options) { o.FailWhenUnreachable = true }, 200, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newCluster("a", "x"), newCluster("b", "x")
				for c, code := range map[*cluster]int{a: test.a, b: test.b} {
					if code == none {
						c.away = true
					} else {
						c.refuse = code
					}
				}
				f := newFixture(t, a, b)
				c := f.watch(test.more)
				synctest.Wait()
				c.stop()
				if c.code != test.want || !strings.Contains(c.body.String(), test.says) {
					t.Errorf("got %d %s, want %d and %q", c.code, c.body.String(), test.want, test.says)
				}
			})
		})
	}
}

// TestNobodyAnswersWhoIsResumed goes on from a list while no cluster answers.
func TestNobodyAnswersWhoIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster("a", "x")
		f := newFixture(t, a)
		at := f.listed()
		a.away = true
		c := f.watch(func(o *Options) { o.ResourceVersion = at.String() })
		defer c.stop()
		diff(t, "while it does not answer", nil, c.events())
		a.with(func() { a.away = false })
		a.set("y")
		time.Sleep(maxBackoff)
		diff(t, "when it does", []string{"ADDED a/y"}, c.events())
	})
}

// TestWatchIsRefused has clusters that may be listed and not watched.
func TestWatchIsRefused(t *testing.T) {
	for _, objects := range []int{0, 3, pageSize + 1} {
		eachForm(t, func(t *testing.T, wants func(*Options)) {
			var names []string
			for i := range objects {
				names = append(names, fmt.Sprintf("x%04d", i))
			}
			a, b := newCluster("a", names...), newCluster("b")
			a.noWatch, b.noWatch = http.StatusForbidden, http.StatusMethodNotAllowed
			f := newFixture(t, a, b)
			c := f.watch(wants)
			<-c.done
			if objects <= pageSize && (c.code != http.StatusForbidden || !strings.Contains(c.body.String(), "a says 403")) {
				t.Errorf("%d objects: got %d %s, want a's 403", objects, c.code, c.body.String())
			}
			if objects > pageSize { // some were sent before it was known
				if got := c.events(); len(got) != objects+1 || got[objects] != encoding.Failed {
					t.Errorf("%d objects: got %d events, want one for each and an ERROR", objects, len(got))
				}
			}
			b.noWatch = 0
			c = f.watch(wants)
			synctest.Wait()
			c.stop()
			want := `299 - "cluster a refused (a says 403); changes of its objects are not shown"`
			if objects <= pageSize && fmt.Sprint(c.header["Warning"]) != "["+want+"]" {
				t.Errorf("%d objects: got warnings %q, want %q", objects, c.header["Warning"], want)
			}
		})
	}
}

// TestWatchIsRefusedLater takes the right to watch away from a client with a stream.
func TestWatchIsRefusedLater(t *testing.T) {
	eachForm(t, func(t *testing.T, wants func(*Options)) {
		a, b := newCluster("a", "x"), newCluster("b", "x")
		f := newFixture(t, a, b)
		c := f.watch(wants)
		diff(t, "at first", []string{"ADDED a/x", "ADDED b/x"}, sorted(c.events()))
		refuse := func(c *cluster, code int) {
			c.with(func() { c.refuse = code })
			c.cut(false)
			time.Sleep(time.Minute)
		}
		refuse(a, http.StatusForbidden)
		diff(t, "one refuses", nil, c.events())
		refuse(a, 0)
		refuse(b, http.StatusForbidden)
		diff(t, "the other one refuses", nil, c.events())
		refuse(a, http.StatusForbidden)
		diff(t, "all refuse", []string{encoding.Failed}, c.events())
		<-c.done
	})
}

// TestFormsInTurn has clusters that answer with whole objects alone.
func TestFormsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b", "x")
		b.wholeOnly = true
		f := newFixture(t, a, b)
		metadata := encoding.Form{As: encoding.AsMetadata, Version: "v1"}
		alone := func(o *Options) { o.Forms = []encoding.Form{metadata} }
		either := func(o *Options) { o.Forms = []encoding.Form{metadata, {}} }
		for name, from := range map[string]func(*Options){"anew": same, "from a version": func(o *Options) {
			at := f.options.Clock.Now()
			f.options.Positions.RecordPage("jane", at, 0, true, map[string]string{a.uid: "100", b.uid: "100"})
			o.ResourceVersion = at.String()
		}} {
			c := f.watch(func(o *Options) { from(o); either(o) })
			diff(t, name, []string{"ADDED a/x", "ADDED b/x"}, sorted(c.events()))
			c.stop()
		}
		c := f.watch(alone)
		diff(t, "a client of metadata alone", []string{"ADDED a/x"}, c.events())
		c.stop()
		a.with(func() { a.wholeOnly = true })
		c = f.watch(alone)
		<-c.done
		if c.code != http.StatusNotAcceptable {
			t.Errorf("when none has metadata: got %d, want 406", c.code)
		}
	})
}

func TestNoInitialEvents(t *testing.T) {
	eachForm(t, func(t *testing.T, wants func(*Options)) {
		a, b, away, late := newCluster("a", "x", "y"), newCluster("b", "x"), newCluster("away", "x"), newCluster("late", "x")
		away.away = true
		f := newFixture(t, a, b, away)
		c := f.watch(func(o *Options) { wants(o); o.SendInitialEvents, o.Bookmarks = new(false), true })
		defer c.stop()
		diff(t, "at first", nil, c.events())
		a.set("x")
		diff(t, "a change", []string{"MODIFIED a/x"}, c.events())
		if got := a.asked(); len(got) != 2 || !strings.Contains(got[0], "limit=1") {
			t.Errorf("got the requests %q, want one for a version and a watch", got)
		}
		f.set(a, b, away, late)
		away.with(func() { away.away = false })
		time.Sleep(time.Minute)
		got := c.events()
		if len(got) > 0 && got[len(got)-1] == encoding.Bookmark {
			got = got[:len(got)-1]
		}
		diff(t, "clusters that came later", []string{"ADDED away/x", "ADDED late/x"}, sorted(got))
		f.set(a, b, late)
		time.Sleep(membersEvery)
		diff(t, "one that came later leaves", []string{"DELETED away/x"}, c.events())
		f.set(b, late)
		time.Sleep(membersEvery)
		diff(t, "one leaves whose objects nobody knows", []string{encoding.Failed}, c.events())
		<-c.done
	})
}

// TestTooManyObjects has more objects than a stream may remember.
func TestTooManyObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b", "x", "y")
		f := newFixture(t, a, b)
		three := func(o *Options) { o.MaxObjects = 3 }
		for name, more := range map[string]func(*Options){"anew": same, "initial events": forInformers} {
			c := f.watch(func(o *Options) { more(o); three(o) })
			c.events()
			b.remove("y")
			b.set("z")
			c.events()
			b.set("y")
			synctest.Wait()
			<-c.done
			if body := c.body.String(); !strings.Contains(body, `"type":"ERROR"`) || !strings.Contains(body, "more than 3 such objects") || !strings.Contains(body, `"code":410`) {
				t.Errorf("%s: got %s, want an ERROR with 410 that says why", name, body)
			}
			c = f.watch(func(o *Options) { more(o); o.MaxObjects = 1 })
			<-c.done
			if body := c.body.String(); !strings.Contains(body, "more than 1 such objects") {
				t.Errorf("%s: got %d %s, want 410", name, c.code, body)
			}
			b.remove("z")
		}
	})
}

// dripping is a cluster whose lists do not end: an object comes every second.
type dripping struct{ *cluster }

func (c dripping) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("watch") {
		return answer(http.StatusForbidden, failure(http.StatusForbidden, "no watch")), nil
	}
	in, out := io.Pipe()
	go func() {
		defer out.Close()
		before := `{"kind":"ConfigMapList","apiVersion":"v1","items":[`
		for i := 1; ; i++ {
			if _, err := fmt.Fprintf(out, `%s{"metadata":{"name":"x%d","resourceVersion":"%d"},"data":{"version":"%d"}}`, before, i, i, i); err != nil {
				return // nobody reads any more
			}
			before = ","
			if i > pageSize {
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
				}
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: in}, nil
}

// TestInitialEventsOfDrippingMember has a member that never fails and never has sent all: the
// client gets its initial bookmark all the same.
func TestInitialEventsOfDrippingMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.options.Members = func(context.Context) ([]Member, error) {
			return []Member{newCluster("a", "x"), dripping{newCluster("dripping")}}, nil
		}
		c := f.watch(forInformers)
		defer c.stop()
		time.Sleep(maxInitial - time.Second)
		if slices.ContainsFunc(c.events(), isInitialEnd) {
			t.Errorf("got an initial bookmark while the member goes on sending")
		}
		time.Sleep(2 * time.Second)
		if !slices.Contains(c.events(), "BOOKMARK initial lacks dripping") {
			t.Errorf("got no initial bookmark within %v", maxInitial)
		}
	})
}
