package fleetview

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// pages lists page by page, and returns the pages.
func (h *Handler) pages(t testing.TB, view fleet.View, limit int, header ...string) []response {
	t.Helper()
	var all []response
	next := ""
	for len(all) < 1000 {
		got := h.getList(t, view, fmt.Sprintf("/api/v1/pods?limit=%d&continue=%s", limit, url.QueryEscape(next)), header...)
		all = append(all, got)
		if next = got.list.Metadata.Continue; next == "" {
			return all
		}
	}
	t.Fatal("got 1000 pages, want an end")
	return nil
}

// namesOf are the objects of all pages.
func namesOf(pages []response) []string {
	names := []string{}
	for _, page := range pages {
		names = append(names, page.names()...)
	}
	return names
}

// podNames are the names of the first n pods of a cluster.
func podNames(cluster string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("web-%04d@%s", i, cluster))
	}
	return names
}

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tests := map[string]struct {
			sizes []int
			limit int
			// pages is how many objects each page has, requests how often members are asked.
			pages    []int
			requests int
		}{
			"one page":            {[]int{2, 3}, 10, []int{5}, 2},
			"exactly":             {[]int{2, 3}, 5, []int{5}, 2},
			"whole members":       {[]int{3, 3, 3}, 4, []int{3, 3, 3}, 6},
			"more than the limit": {[]int{5, 1}, 2, []int{2, 2, 2}, 5},
			"large in the middle": {[]int{1, 5, 1, 1}, 3, []int{1, 3, 3, 1}, 10},
			"empty members":       {[]int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, 3, []int{2}, 20},
			"nothing":             {[]int{0, 0}, 3, []int{0}, 2},
			"many of one":         {slices.Repeat([]int{1}, 20), 10, []int{10, 10}, 20},
		}
		for name, test := range tests {
			for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
				var clusters []*cluster
				want := []string{}
				for i, n := range test.sizes {
					clusters = append(clusters, newCluster(fmt.Sprintf("c%02d", i), pods(n)...))
					want = append(want, podNames(clusters[i].name, n)...)
				}
				got := New(Options{}).pages(t, testView(clusters...), test.limit, "Accept", accept)
				if diff := cmp.Diff(want, namesOf(got)); diff != "" {
					t.Errorf("%s: names (-want +got):\n%s", name, diff)
				}
				var pages []int
				for _, page := range got {
					pages = append(pages, len(page.names()))
					if page.list.Metadata.ResourceVersion != got[0].list.Metadata.ResourceVersion || page.list.Kind != got[0].list.Kind {
						t.Errorf("%s: got a page with %+v, want the first one's version", name, page.list.Metadata)
					}
				}
				requests := 0
				for _, c := range clusters {
					requests += len(c.asked())
				}
				if diff := cmp.Diff(test.pages, pages); diff != "" || requests != test.requests {
					t.Errorf("%s: got %d requests, want %d; pages (-want +got):\n%s", name, requests, test.requests, diff)
				}
			}
		}
	})
}

// TestAnyPages lists fleets of any sizes, of which some members do not answer at times.
func TestAnyPages(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 100 {
		var clusters []*cluster
		var want, flaky []string
		for i := range 1 + random.IntN(15) {
			n := random.IntN(8)
			c := newCluster(fmt.Sprintf("c%02d", i), pods(n)...)
			clusters = append(clusters, c)
			want = append(want, podNames(c.name, n)...)
			if random.IntN(4) == 0 {
				flaky = append(flaky, c.name)
				c.fault = func(w http.ResponseWriter, r *http.Request) bool {
					c.mu.Lock()
					c.fault = nil // once
					c.mu.Unlock()
					return away(w, r)
				}
			}
		}
		limit := 1 + random.IntN(12)
		pages := New(Options{}).pages(t, testView(clusters...), limit)
		got := namesOf(pages)
		for _, page := range pages {
			if len(page.lacks()) > 0 && len(flaky) == 0 || len(page.names()) > limit || page.list.Kind != "PodList" {
				t.Fatalf("round %d: got %s with Warnings %q, want at most %d objects", round, page.body, page.warnings, limit)
			}
			// A page on which all were asked that are left says which of them did not answer.
			for _, name := range flaky {
				if slices.ContainsFunc(page.warnings, func(w string) bool { return strings.Contains(w, "cluster "+name) }) {
					want = slices.DeleteFunc(want, func(object string) bool { return strings.HasSuffix(object, "@"+name) })
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got, cmp.Transformer("nil", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
			t.Fatalf("round %d with limit %d, flaky %q: names (-want +got):\n%s", round, limit, flaky, diff)
		}
	}
}

func TestNoMemberIsAskedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clusters []*cluster
		for i := range 500 {
			clusters = append(clusters, newCluster(fmt.Sprintf("c%03d", i), pods(10)...))
		}
		pages := New(Options{}).pages(t, testView(clusters...), 500)
		if len(pages) != 10 || len(namesOf(pages)) != 5000 {
			t.Errorf("got %d pages with %d objects, want 10 with 5000", len(pages), len(namesOf(pages)))
		}
		for _, c := range clusters {
			if asked := c.asked(); len(asked) != 1 {
				t.Errorf("cluster %s was asked %d times, want once", c.name, len(asked))
			}
		}
	})
}

func TestExpiredPages(t *testing.T) {
	a, b := newCluster("a", pods(1)...), newCluster("b", pods(5)...)
	h := New(Options{})
	first := h.getList(t, testView(a, b), "/api/v1/pods?limit=2&fieldSelector=metadata.cluster%3Db")
	b.set(shop+"/zz", nil)
	b.with(func(c *cluster) { c.expired = true })
	got := h.getList(t, testView(a, b), "/api/v1/pods?limit=2&continue="+first.list.Metadata.Continue)
	if got.code != http.StatusGone || got.status.Reason != "Expired" || !strings.Contains(got.status.Message, "too old") {
		t.Fatalf("got %d %q, want 410", got.code, got.body)
	}
	rest := h.getList(t, testView(a, b), "/api/v1/pods?limit=9&continue="+got.status.Continue)
	want := []string{"web-0002@b", "web-0003@b", "web-0004@b", "zz@b"}
	if diff := cmp.Diff(want, rest.names()); diff != "" {
		t.Errorf("names of the rest (-want +got):\n%s", diff)
	}
}

func TestClusterGoesBetweenPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or a busy machine passes members over
		a, b, c := newCluster("a", pods(2)...), newCluster("b", pods(2)...), newCluster("c", pods(2)...)
		h := New(Options{})
		first := h.getList(t, testView(a, b, c), "/api/v1/pods?limit=2")
		b.failing(refusing(500))
		got := h.getList(t, testView(a, b, c), "/api/v1/pods?limit=9&continue="+first.list.Metadata.Continue)
		if diff := cmp.Diff(podNames("c", 2), got.names()); diff != "" || len(got.lacks()) != 1 || !strings.Contains(got.lacks()[0], "cluster b") {
			t.Errorf("got Warnings %q, want one for b; names (-want +got):\n%s", got.warnings, diff)
		}
		// The client has all of a.
		a.failing(away)
		b.failing(nil)
		got = h.getList(t, testView(a, b, c), "/api/v1/pods?limit=9&continue="+first.list.Metadata.Continue)
		if len(got.lacks()) != 0 || len(got.names()) != 4 {
			t.Errorf("got %q with Warnings %q, want b and c without Warnings", got.names(), got.warnings)
		}
	})
}

// TestMemberFailsBetweenPages has a member fail of whose objects a page had a part: there is
// no next page without the others, and it comes when the member answers again.
func TestMemberFailsBetweenPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or a busy machine passes members over
		a, b := newCluster("a", pods(5)...), newCluster("b", pods(2)...)
		h := New(Options{})
		first := h.getList(t, testView(a, b), "/api/v1/pods?limit=3")
		next := "/api/v1/pods?limit=9&continue=" + first.list.Metadata.Continue
		for name, test := range map[string]struct {
			fault func(http.ResponseWriter, *http.Request) bool
			code  int
		}{
			"away":     {away, http.StatusServiceUnavailable},
			"broken":   {breaking(a, 150, reset), http.StatusServiceUnavailable},
			"refusing": {refusing(http.StatusForbidden), http.StatusForbidden},
		} {
			a.failing(test.fault)
			if got := h.getList(t, testView(a, b), next); got.code != test.code {
				t.Errorf("%s: got %d with %q and Warnings %q, want %d", name, got.code, got.names(), got.warnings, test.code)
			}
		}
		a.failing(nil)
		got := h.getList(t, testView(a, b), next)
		if diff := cmp.Diff(slices.Concat(podNames("a", 5)[3:], podNames("b", 2)), got.names()); diff != "" || len(got.warnings) > 1 {
			t.Errorf("when it answers again: got Warnings %q; names (-want +got):\n%s", got.warnings, diff)
		}
	})
}

// TestRestWithoutALimit asks for all that follows a page at once: of the members, one alone goes
// on where the page ended.
func TestRestWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or a busy machine passes members over
		a, b := newCluster("a", pods(5)...), newCluster("b", pods(2)...)
		h := New(Options{})
		first := h.getList(t, testView(a, b), "/api/v1/pods?limit=3")
		next := "/api/v1/pods?continue=" + first.list.Metadata.Continue
		got := h.getList(t, testView(a, b), next)
		if diff := cmp.Diff(slices.Concat(podNames("a", 5)[3:], podNames("b", 2)), got.names()); diff != "" || len(got.warnings) > 0 {
			t.Errorf("got %d with Warnings %q; names (-want +got):\n%s", got.code, got.warnings, diff)
		}
		b.failing(away)
		if got := h.getList(t, testView(a, b), next); got.code != http.StatusOK || len(got.names()) != 2 || len(got.warnings) != 1 {
			t.Errorf("without one of which no page had a part: got %d with %q and Warnings %q, want the others' objects and a Warning", got.code, got.names(), got.warnings)
		}
		b.failing(nil)
		a.failing(away)
		if got := h.getList(t, testView(a, b), next); got.code != http.StatusServiceUnavailable {
			t.Errorf("without the one of which a page had a part: got %d with %q, want %d", got.code, got.names(), http.StatusServiceUnavailable)
		}
	})
}

// TestRestWithoutALimitExpires asks for all that is left of members that were passed over at
// once, when the one that a page ended in does not know its token any more: the token that
// goes on is for the others, too.
func TestRestWithoutALimitExpires(t *testing.T) {
	a, b, c := newCluster("a", pods(5)...), newCluster("b", pods(2)...), newCluster("c", pods(1)...)
	a.with(func(c *cluster) { c.expired = true })
	h := New(Options{})
	token := version.Continue{Time: time.Now().UnixMicro(), Page: 1, Next: "a", Member: "from-3-of-1", Deferred: []string{"a", "b", "c"}, Clusters: 1, Items: 3}
	got := h.getList(t, testView(a, b, c), "/api/v1/pods?continue="+token.String())
	if got.code != http.StatusGone || got.status.Continue == "" {
		t.Fatalf("got %d with %q, want %d and a token", got.code, got.body, http.StatusGone)
	}
	got = h.getList(t, testView(a, b, c), "/api/v1/pods?continue="+got.status.Continue)
	if diff := cmp.Diff(slices.Concat(podNames("a", 5)[3:], podNames("b", 2), podNames("c", 1)), got.names()); diff != "" || got.list.Metadata.Continue != "" {
		t.Errorf("got %d; names (-want +got):\n%s", got.code, diff)
	}
}

// TestSilentMemberIsPassedOver lists with a member that does not answer: the others' objects
// are out before its timeout, and the last page says that it lacks.
func TestSilentMemberIsPassedOver(t *testing.T) {
	for name, fault := range map[string]func(*cluster) func(http.ResponseWriter, *http.Request) bool{
		"before the header": func(*cluster) func(http.ResponseWriter, *http.Request) bool { return silent },
		"in the first item": func(c *cluster) func(http.ResponseWriter, *http.Request) bool { return breaking(c, 150, freeze) },
		"drip by drip": func(*cluster) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Content-Type", fleet.JSONType)
				for r.Context().Err() == nil {
					_, _ = w.Write([]byte(" "))
					slow(time.Second)(w, r)
				}
				freeze(r) // else the answer may end as one that is whole
				return true
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b, c := newCluster("a", pods(2)...), newCluster("b", pods(2)...), newCluster("c", pods(2)...)
			b.fault = fault(b)
			view := testView(a, b, c)
			view.Timeout = 5 * time.Second
			h := New(Options{})
			began := time.Now()
			first := h.getList(t, view, "/api/v1/pods?limit=500")
			if took := time.Since(began); took > time.Second || len(first.names()) != 4 || first.list.Metadata.Continue == "" || len(first.lacks()) != 0 {
				t.Errorf("%s: got %q after %v with Warnings %q, want a and c before the timeout", name, first.names(), took, first.warnings)
			}
			last := h.getList(t, view, "/api/v1/pods?limit=500&continue="+first.list.Metadata.Continue)
			if took := time.Since(began); took > 7*time.Second || len(last.names()) != 0 || last.list.Metadata.Continue != "" || len(last.lacks()) != 1 || last.list.Kind != "PodList" {
				t.Errorf("%s: got the last page %q after %v with Warnings %q, want none but one Warning", name, last.body, took, last.warnings)
			}
			b.failing(nil)
			if last = h.getList(t, view, "/api/v1/pods?limit=500&continue="+first.list.Metadata.Continue); len(last.names()) != 2 || len(last.lacks()) != 0 {
				t.Errorf("%s: got %q when it answers again, want its objects", name, last.names())
			}
			b.failing(fault(b))
			began = time.Now()
			whole := h.getList(t, view, "/api/v1/pods")
			if took := time.Since(began); took > 6*time.Second || len(whole.names()) != 4 || len(whole.lacks()) != 1 || !strings.Contains(whole.lacks()[0], "timeout") {
				t.Errorf("%s: without limit: got %q after %v with Warnings %q, want a and c and a Warning", name, whole.names(), took, whole.warnings)
			}
			a.asked()
		})
	}
}

// TestManyLateMembers lists 1,000 members of which nearly all are late, as those that nobody has used
// for a while and a busy hub. The names of those that were passed over stay few enough for a URL.
func TestManyLateMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = 16 << 10
		var members []*cluster
		for i := range 1000 {
			c := newCluster(fmt.Sprintf("cluster-with-a-name-of-forty-letters-%04d", i), pods(1)...)
			if i%50 > 0 {
				c.fault = slow(time.Second)
			}
			members = append(members, c)
		}
		view := testView(members...)
		view.Timeout = 5 * time.Second
		pages := New(Options{}).pages(t, view, 100)
		if got := namesOf(pages); len(got) != len(members) {
			t.Errorf("got %d objects of %d members", len(got), len(members))
		}
		for i, page := range pages {
			if got := len(page.list.Metadata.Continue); got > longest || len(page.lacks()) > 0 {
				t.Errorf("page %d has a continue token of %d bytes and Warnings %q, want %d bytes at most", i, got, page.lacks(), longest)
			}
		}
		for _, c := range members {
			c.asked()
		}
	})
}

// TestMembersThatAreLateTogether lists members that nobody has used for a while, of a hub with few
// processors: those of a wave all answer at the same moment. None is passed over, which would ask
// it twice.
func TestMembersThatAreLateTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var members []*cluster
		for i := range 3 * fleet.MaxAsked {
			c := newCluster(fmt.Sprintf("cluster-%04d", i), pods(1)...)
			if i >= 8 { // the first wave

				c.fault = slow(time.Second)
			}
			members = append(members, c)
		}
		pages := New(Options{}).pages(t, testView(members...), 500)
		if got := namesOf(pages); len(got) != len(members) {
			t.Errorf("got %d objects of %d members", len(got), len(members))
		}
		for _, c := range members {
			if n := len(c.asked()); n != 1 {
				t.Fatalf("member %s was asked %d times, want once", c.name, n)
			}
		}
	})
}

// TestSilentMemberIsLast lists with a silent member that is asked after all others: what the
// page has of them does not wait for it, and it is not waited for twice.
func TestSilentMemberIsLast(t *testing.T) {
	const hold = 300 * time.Millisecond // for the others when one has answered
	for name, test := range map[string]struct {
		limit int
		// want are the objects of each page, and took when it came.
		want []int
		took []time.Duration
	}{
		"alone on its page":     {3, []int{3, 3, 0}, []time.Duration{hold, 0, 5 * time.Second}},
		"on a page with others": {4, []int{4, 2, 0}, []time.Duration{hold, hold, 5 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newCluster("a", pods(6)...), newCluster("b", pods(2)...)
			b.failing(silent)
			view := testView(a, b)
			view.Timeout = 5 * time.Second
			h := New(Options{})
			next := ""
			for i, want := range test.want {
				began := time.Now()
				page := h.getList(t, view, fmt.Sprintf("/api/v1/pods?limit=%d&continue=%s", test.limit, url.QueryEscape(next)))
				next = page.list.Metadata.Continue
				isLast := i == len(test.want)-1
				if took := time.Since(began); took != test.took[i] || len(page.names()) != want || isLast != (next == "") || isLast != (len(page.lacks()) == 1) {
					t.Errorf("%s: got page %d with %q and Warnings %q after %v, want %d objects after %v", name, i+1, page.names(), page.warnings, took, want, test.took[i])
				}
			}
		})
	}
}

// TestUsualPages asks no more members for a first page than have filled it before.
func TestUsualPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", pods(20)...), newCluster("b", pods(20)...)
		h, view := New(Options{}), testView(a, b, newCluster("c", pods(1)...))
		check := func(what, path string, want int) {
			t.Helper()
			got := h.getList(t, view, path)
			if n, m := len(a.asked()), len(b.asked()); len(got.names()) != 10 || n != 1 || m != want {
				t.Errorf("%s: got %q and %d and %d requests, want a page by 1 and %d", what, got.names(), n, m, want)
			}
		}
		check("at first", "/api/v1/pods?limit=10", 1)
		check("again", "/api/v1/pods?limit=10", 0)
		check("once more", "/api/v1/pods?limit=10", 0)
		check("another namespace", "/api/v1/namespaces/shop/pods?limit=10", 1)
		check("another selector", "/api/v1/pods?limit=10&labelSelector=%21a", 1)
		view.User = "bob"
		check("another user", "/api/v1/pods?limit=10", 1)
		view.User = "ann"
		a.with(func(c *cluster) { clear(c.objects) })
		check("when a has nothing", "/api/v1/pods?limit=10", 1)
	})
}
