package fleetview

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// tableOf is how kubectl get asks.
const tableOf = "application/json;as=Table;v=v1;g=meta.k8s.io"

// forInformers is a view of clusters that waits a minute for one that does not answer an
// informer, and 4 s for others. It is for a bubble, whose time begins before that of versions.
func forInformers(clusters ...*cluster) fleet.View {
	time.Sleep(time.Until(time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)))
	view := testView(clusters...)
	view.Timeout, view.InformerTimeout = 4*time.Second, time.Minute
	return view
}

// allPages lists with a query until there is no continue token, as client-go's pager does. It
// returns which clusters the pages say are missing.
func allPages(t *testing.T, h *Handler, view fleet.View, query url.Values, header ...string) (names, missing []string, last response) {
	t.Helper()
	for {
		last = h.getList(t, view, shop+"?"+query.Encode(), header...)
		if last.code != http.StatusOK {
			return names, missing, last
		}
		names = append(names, last.names()...)
		var list struct {
			Metadata struct{ Annotations map[string]string }
		}
		if err := json.Unmarshal([]byte(last.body), &list); err != nil {
			t.Fatal(err)
		}
		for _, cluster := range strings.Split(list.Metadata.Annotations["clusterproxy.open-cluster-management.io/missing-clusters"], ",") {
			if cluster != "" {
				missing = append(missing, cluster)
			}
		}
		if last.list.Metadata.Continue == "" {
			return names, missing, last
		}
		query = url.Values{"limit": query["limit"], "continue": {last.list.Metadata.Continue}}
	}
}

// TestInformersListsWait has a cluster that does not answer for 20 s. An informer's list waits for
// it, because an informer deletes what is not in its list. A person's does not.
func TestInformersListsWait(t *testing.T) {
	const ofView = "a version of the view"
	for name, test := range map[string]struct {
		query, accept string
		waits         bool
	}{
		"an informer's first":                {"limit=500&resourceVersion=0", "", true},
		"an informer's first, small pages":   {"limit=1&resourceVersion=0", "", true},
		"an informer's again":                {"resourceVersion=" + ofView, "", true},
		"an informer's again, in pages":      {"limit=2&resourceVersion=" + ofView, "", true},
		"an informer's of one cluster":       {"resourceVersion=101", "", true},
		"not older than":                     {"resourceVersionMatch=NotOlderThan&resourceVersion=" + ofView, "", true},
		"kubectl get":                        {"limit=500", tableOf, false},
		"kubectl get -o yaml":                {"limit=500", "", false},
		"a script":                           {"", "", false},
		"a Table from the members' caches":   {"resourceVersion=0", tableOf, false},
		"a person's in pages":                {"limit=1", "", false},
		"one that was listed, as it was":     {"resourceVersionMatch=Exact&resourceVersion=" + ofView, "", false},
		"an informer's, that chooses others": {"resourceVersion=0&fieldSelector=metadata.cluster!%3Db", "", false},
	} {
		for fault, away := range map[string]func(http.ResponseWriter, *http.Request) bool{"no tunnel": away, "frozen": silent, "it is starting": refusing(503)} {
			t.Run(name+", "+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, b := newCluster("a", pods(2)...), newCluster("b", pods(1)...)
					h, view := New(Options{}), forInformers(a, b)
					at := h.getList(t, view, shop).list.Metadata.ResourceVersion
					b.failing(away)
					time.AfterFunc(20*time.Second, func() { b.failing(nil) })
					query, err := url.ParseQuery(strings.ReplaceAll(test.query, ofView, at))
					if err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					var header []string
					if test.accept != "" {
						header = []string{"Accept", test.accept}
					}
					names, missing, last := allPages(t, h, view, query, header...)
					took := time.Since(began)
					time.Sleep(time.Minute) // the timer's
					if test.waits != (took >= 20*time.Second) {
						t.Errorf("it took %v, want to wait for the cluster: %v", took, test.waits)
					}
					if test.waits && (!slices.Contains(names, "web-0000@b") || len(missing) > 0) {
						t.Errorf("got %d with %q, missing %q; want the cluster's objects", last.code, names, missing)
					}
				})
			})
		}
	}
}

// TestInformersListsName has clusters that stay away for longer than the view waits: the list comes
// without their objects, and says so to people and to programs.
func TestInformersListsName(t *testing.T) {
	for _, query := range []string{"resourceVersion=0", "limit=500&resourceVersion=0", "limit=1&resourceVersion=0"} {
		synctest.Test(t, func(t *testing.T) {
			a, b, c, d := newCluster("a", pods(2)...), newCluster("b", pods(1)...), newCluster("c", pods(1)...), newCluster("d").failing(refusing(404))
			b.failing(away)
			c.failing(refusing(403))
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			view := forInformers(a, b, c, d, newCluster("e", pods(1)...).failing(away))
			began := time.Now()
			names, missing, _ := allPages(t, New(Options{}), view, values)
			if took := time.Since(began); took < time.Minute || took > time.Minute+10*time.Second {
				t.Errorf("%s: it took %v, want a minute and what the last answers took", query, took)
			}
			slices.Sort(missing)
			if !slices.Equal(slices.Compact(missing), []string{"b", "c", "e"}) || len(names) != 2 {
				t.Errorf("%s: got %q, missing %q; want b, c and e", query, names, missing)
			}
		})
	}
}

// TestInformersListsBelieveRefusals has a kube-apiserver that refuses everybody while it starts.
func TestInformersListsBelieveRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", pods(1)...), newCluster("b", pods(1)...).failing(refusing(403))
		view := forInformers(a, b)
		time.AfterFunc(2*time.Second, func() { b.failing(nil) })
		if got := New(Options{}).getList(t, view, shop+"?resourceVersion=0"); len(got.names()) != 2 {
			t.Errorf("got %q with Warnings %q, want both", got.names(), got.warnings)
		}
		b.failing(refusing(403))
		began := time.Now()
		if got := New(Options{}).getList(t, view, shop+"?resourceVersion=0"); len(got.names()) != 1 || len(got.warnings) != 1 {
			t.Errorf("got %q with Warnings %q, want one", got.names(), got.warnings)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a refusal that lasts was believed after %v", took)
		}
	})
}

// TestNoneOfTheInformersListsIsGone lists from versions that another replica, or a former form of
// the view, has given out: after 410 an informer would list as people do.
func TestNoneOfTheInformersListsIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, view := New(Options{}), forInformers(newCluster("a", pods(1)...))
		for _, at := range []string{"0", "101", version.Version{Time: time.Now().Add(time.Hour).UnixMicro()}.String(), version.Version{Time: time.Now().Add(-time.Hour).UnixMicro()}.String()} {
			for _, form := range []string{"%s?resourceVersion=%s", "%s?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=%s"} {
				if got := h.getList(t, view, fmt.Sprintf(form, shop, at)); got.code != http.StatusOK || !strings.Contains(got.body, "web-0000") {
					t.Errorf("%s: got %d %q, want the objects", fmt.Sprintf(form, "", at), got.code, got.body)
				}
			}
		}
	})
}

// TestViewsThatFailDoNotWait has a view that is all or nothing: its informers keep what they have
// after an error.
func TestViewsThatFailDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := forInformers(newCluster("a", pods(1)...), newCluster("b").failing(away))
		view.FailWhenUnreachable = true
		for _, query := range []string{"resourceVersion=0", "limit=500&resourceVersion=0"} {
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if _, _, got := allPages(t, New(Options{}), view, values); got.code != http.StatusServiceUnavailable || time.Since(began) > 0 {
				t.Errorf("%s: got %d after %v, want 503 at once", query, got.code, time.Since(began))
			}
		}
	})
}
