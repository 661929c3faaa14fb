package fleetview

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// flushRecorder notes when the first bytes were sent, and what was sent then.
type flushRecorder struct {
	*httptest.ResponseRecorder
	began, first time.Time
	sent         string
}

func (r *flushRecorder) Flush() {
	if r.first.IsZero() {
		r.first, r.sent = time.Now(), r.Body.String()
	}
}

// TestLateMember has a member that begins to answer after half of the view's timeout. The
// objects of others do not wait for it, and its own come, or there was a Warning.
func TestLateMember(t *testing.T) {
	const timeout = 4 * time.Second
	both := func(one, other func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool { return one(w, r) || other(w, r) }
	}
	after := slow(3 * time.Second)
	for name, test := range map[string]struct {
		fault func(*cluster) func(http.ResponseWriter, *http.Request) bool
		fail  bool
		// first is when the first bytes are sent; 0 is with the whole answer.
		first time.Duration
		code  int
		want  []string
		warns bool
	}{
		"it answers": {func(*cluster) func(http.ResponseWriter, *http.Request) bool { return after }, false, timeout / 2, 200,
			[]string{"web-0000@a", "web-0000@c", "web-0000@b"}, true},
		"it refuses": {func(*cluster) func(http.ResponseWriter, *http.Request) bool { return both(after, refusing(403)) }, false, timeout / 2, 200,
			[]string{"web-0000@a", "web-0000@c"}, true},
		"it breaks off": {func(c *cluster) func(http.ResponseWriter, *http.Request) bool {
			return both(after, breaking(c, 100, reset))
		}, false, timeout / 2, 200,
			[]string{"web-0000@a", "web-0000@c"}, true},
		"it is silent": {func(*cluster) func(http.ResponseWriter, *http.Request) bool { return silent }, false, timeout / 2, 200,
			[]string{"web-0000@a", "web-0000@c"}, true},
		"it is in time": {func(*cluster) func(http.ResponseWriter, *http.Request) bool { return slow(time.Second) }, false, 0, 200,
			[]string{"web-0000@a", "web-0000@b", "web-0000@c"}, false},
		"all or nothing": {func(*cluster) func(http.ResponseWriter, *http.Request) bool { return silent }, true, 0, 503, []string{}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b, c := newCluster("a", pods(1)...), newCluster("b", pods(1)...), newCluster("c", pods(1)...)
			b.fault = test.fault(b)
			view := testView(a, b, c)
			view.Timeout, view.FailWhenUnreachable, view.Qualified = timeout, test.fail, false
			w := &flushRecorder{ResponseRecorder: httptest.NewRecorder(), began: time.Now()}
			New(Options{}).Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil), view)
			var got []string
			for _, part := range strings.Split(w.Body.String(), fleet.AnnotationCluster+`":"`)[1:] {
				got = append(got, "web-0000@"+part[:1])
			}
			if diff := cmp.Diff(append([]string(nil), test.want...), got); diff != "" || w.Code != test.code {
				t.Errorf("%s: got %d with (-want +got):\n%s", name, w.Code, diff)
			}
			late := strings.Contains(strings.Join(w.Header()["Warning"], "\n"), "cluster b did not answer (no answer within half of the view's timeout); its objects are at the end")
			if late != test.warns {
				t.Errorf("%s: got Warnings %q, want one about b: %v", name, w.Header()["Warning"], test.warns)
			}
			if test.first != 0 && (w.first.Sub(w.began) != test.first || strings.Count(w.sent, fleet.AnnotationCluster) != 2) {
				t.Errorf("%s: got %q after %v, want the objects of a and c after %v", name, w.sent, w.first.Sub(w.began), test.first)
			}
			if !w.first.IsZero() && test.first == 0 {
				t.Errorf("%s: got %q early, want all at once", name, w.sent)
			}
		})
	}
}
