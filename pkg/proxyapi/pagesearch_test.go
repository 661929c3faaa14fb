package proxyapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/test/testkit/browser"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// pageIndex finds hits by the keys of a query. A search for the name "slow" has no answer.
type pageIndex struct {
	hits  []indexapi.Hit
	basis indexapi.Basis
}

func (i pageIndex) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request indexapi.CountRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	parsed, err := query.Parse(request.Query)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if parsed.String() == "name:slow" {
		<-r.Context().Done()
		return
	}
	found := slices.DeleteFunc(slices.Clone(i.hits), func(h indexapi.Hit) bool {
		return !parsed.Match(query.Cluster, h.Cluster) || !parsed.Match(query.Kind, h.Kind) || !parsed.Match(query.Name, h.Name) || !parsed.Match(query.Status, h.Status)
	})
	if r.URL.Path == indexapi.SearchPath {
		from, _ := strconv.Atoi(request.Continue)
		to := min(from+request.Limit, len(found))
		answer := indexapi.SearchAnswer{Basis: i.basis, Hits: found[from:to]}
		if to < len(found) {
			answer.Continue = strconv.Itoa(to)
		}
		_ = json.NewEncoder(w).Encode(answer)
		return
	}
	counts := map[string]int64{}
	for _, h := range found {
		counts[map[string]string{"cluster": h.Cluster, "kind": h.Kind, "status": h.Status}[request.By[0]]]++
	}
	answer := indexapi.CountAnswer{Basis: i.basis, Total: int64(len(found))}
	for value, n := range counts {
		answer.Counts = append(answer.Counts, indexapi.Count{Values: []string{value}, N: n})
	}
	slices.SortFunc(answer.Counts, func(a, b indexapi.Count) int {
		return 2*int(b.N-a.N) + strings.Compare(a.Values[0], b.Values[0])
	})
	_ = json.NewEncoder(w).Encode(answer)
}

// newPageIndex has four objects of each cluster. The second cluster is away, and one object of the first has markup wherever it can.
func newPageIndex(clusters int) pageIndex {
	known := newDescribedClusters(clusters)
	names := known.Names()
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-3:], b[len(b)-3:]) })
	heard := time.Now().Add(-3 * time.Hour)
	index := pageIndex{basis: indexapi.Basis{Away: map[string]time.Time{names[1]: heard}, Incomplete: map[string]string{names[0]: markup}}}
	for n, cluster := range names {
		for i, app := range []string{"web", "checkout", "cache", "log-agent"} {
			h := indexapi.Hit{Cluster: cluster, APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: fmt.Sprintf("%s-7d9f-%d", app, n), UID: fmt.Sprint(n, i), Status: "Running",
				Created: time.Now().Add(-time.Duration(n*7+i*50+1) * time.Hour), Labels: map[string]string{"app": app, "tier": "front"}, Owner: "ReplicaSet/" + app, Images: []string{"registry/" + app + ":1.25"}, Node: "node-1",
				Columns: []string{"Ready", "Status", "Restarts", "IP", "Node", "Nominated Node"}, Cells: json.RawMessage(`["1/1","Running","0","10.4.0.17","node-1","<none>"]`)}
			switch {
			case i == 1 && n%9 == 0:
				h.Status, h.Cells = "CrashLoopBackOff", json.RawMessage(`["0/1","CrashLoopBackOff","17 (2m ago)","10.4.0.18","node-1","<none>"]`)
			case i == 2:
				h.APIVersion, h.Kind, h.Resource, h.Status, h.Images, h.Node = "apps/v1", "Deployment", "deployments", "", nil, ""
				h.Columns, h.Cells = []string{"Ready", "Up-to-date", "Available"}, json.RawMessage(`["1/1",1,1]`)
			}
			if n == 1 {
				h.AsOf = heard
			}
			index.hits = append(index.hits, h)
		}
	}
	index.hits = append(index.hits, indexapi.Hit{Cluster: names[0], APIVersion: markup, Kind: "Evil", Resource: "evils", Namespace: markup, Name: markup, Status: markup, Labels: map[string]string{markup: markup},
		Owner: markup, Images: []string{markup}, Node: markup, Columns: []string{markup}, Cells: json.RawMessage(`["<img src=x onerror=\"window.owned=1\">"]`)})
	return index
}

const hitsShown = `document.querySelectorAll('#hits tr[aria-expanded]').length`

func TestPageSearches(t *testing.T) {
	long.Test(t)
	for _, count := range []int{2, 500} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			browser.Needs(t)
			set, serve := listenIndex(t, newPageIndex(count), indexLeaf())
			w := pageWorld(t, count, set)
			serve(w)
			names := w.known.(describedClusters).Names()
			for _, view := range w.views.views {
				view.Spec.Clusters.Names = names
			}
			w.api.Allow("root get fleetviews *", "root list clusters/proxy *")
			p := browser.Open(t, filepath.Join(w.dir, "proxy-api-ca.crt"))

			// A link to a search is followed after its reader has signed in.
			signIn(p, w.url+"/ui/#search?q=kind:pod", "roots-token")
			p.WaitFor(fmt.Sprintf(`%s === %d && document.querySelector('#tab-search .count').textContent === '%s'`, hitsShown, min(3*count, 100), map[int]string{2: "6", 500: "1,500"}[count]))
			p.WaitFor(`document.getElementById('search').getAttribute('aria-busy') === 'false' && document.querySelectorAll('tr[data-old]').length > 0`)
			if folder := os.Getenv("E2E_PICTURES"); folder != "" && count == 500 {
				if err := os.WriteFile(filepath.Join(folder, "search-500.png"), []byte(p.Screenshot(1280, 560)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var said string
			if err := json.Unmarshal([]byte(p.Eval(`document.getElementById('basis').textContent + document.getElementById('hits').textContent`)), &said); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"1 cluster away · 1 incomplete", "Cluster staging-cluster-002 was last heard at ", "; its objects are as of then.", "Cluster prod-cluster-001 is incomplete in the fleet index (<img", "; some of its objects are not found.", "as of "} {
				if !strings.Contains(said, want) {
					t.Errorf("the page says %s; want %q in it", said, want)
				}
			}
			if count == 500 {
				p.Eval(`document.getElementById('more-hits').click()`)
				p.WaitFor(hitsShown + ` === 200`)
			}

			// A count narrows the query, and the address is a link to it. Back leads back.
			p.Eval(`{ const count = [...document.querySelectorAll('.facet button')].find(b => b.textContent.startsWith('CrashLoopBackOff')); count.focus(); count.click(); }`)
			p.WaitFor(fmt.Sprintf(`%s === %d && location.hash === '#search?q=kind%%3Apod+status%%3ACrashLoopBackOff' && document.activeElement.ariaPressed === 'true'`, hitsShown, (count+8)/9))
			p.Eval(`history.back()`)
			p.WaitFor(`document.getElementById('query').value === 'kind:pod' && document.querySelectorAll('.facet [aria-pressed=true]').length === 1`)

			// The keyboard: to the query, a search that does not end, one that ends it, and more of its first row.
			p.Eval(`document.activeElement.blur(); window.signals = []; { const ask = window.fetch; window.fetch = (url, o) => { if (url.includes('/search')) signals.push(o.signal); return ask(url, o); }; }`)
			for _, words := range []string{"name:slow", "name:web-7d9f-1"} {
				p.Press("/")
				p.WaitFor(`document.activeElement.id === 'query'`)
				p.Eval(`document.activeElement.select()`)
				p.Type(words)
				p.Press("Enter")
				p.WaitFor(`signals.length > 0`)
				p.Eval(`document.activeElement.blur()`)
			}
			p.WaitFor(`signals[0].aborted && ` + hitsShown + ` === 1 && document.getElementById('search').getAttribute('aria-busy') === 'false'`)
			p.Press("/")
			p.Press("ArrowDown")
			p.Press("Enter")
			p.WaitFor(`document.querySelector('.detail code').textContent === 'kubectl --context fleet get pods/web-7d9f-1@staging-cluster-002 -n shop -o yaml'`)

			// Markup stays text, and the page offers no command for names that a terminal would take for more.
			p.Eval(`location.hash = '#search?q=kind:evil'`)
			p.WaitFor(hitsShown + ` === 1 && document.getElementById('hits').textContent.includes('<script>')`)
			p.Eval(`document.querySelector('#hits tr[aria-expanded]').click()`)
			p.WaitFor(`document.querySelector('.detail').textContent.includes('not safe to paste') && !document.querySelector('.detail code')`)

			p.Eval(`location.hash = '#search?q=king:pod'`)
			p.WaitFor(`document.getElementById('search-failure').textContent.includes('"king" is no key of a search') && ` + hitsShown + ` === 0`)
			checkPage(t, p, "roots-token")
			p.Eval(`document.getElementById('leave').click()`)
			p.WaitFor(`location.hash === '' && document.getElementById('query').value === '' && document.getElementById('search').hidden`)
		})
	}
}

// TestPageSaysWhyItCannotSearch has a hub without an index, and a user without the right.
func TestPageSaysWhyItCannotSearch(t *testing.T) {
	long.Test(t)
	browser.Needs(t)
	w := pageWorld(t, 2)
	w.api.Allow("root get fleetviews *", "root list clusters/proxy *")
	for token, want := range map[string]string{
		"roots-token": "There is no index on this hub, so nothing can be searched. An administrator installs one:helm upgrade cluster-proxy",
		"janes-token": "You may not search here. Ask for ClusterRole cluster-proxy-viewer on the hub.",
	} {
		p := browser.Open(t, filepath.Join(w.dir, "proxy-api-ca.crt"))
		signIn(p, w.url+"/ui/", token)
		p.WaitFor(rowsShown + ` > 0`)
		p.Eval(`document.activeElement.blur()`)
		p.Press("s")
		p.WaitFor(`document.activeElement.id === 'query' && !document.getElementById('examples').hidden`)
		p.Type("web")
		p.Press("Enter")
		p.WaitFor(fmt.Sprintf(`document.getElementById('search-failure').textContent.startsWith(%q)`, want))
		checkPage(t, p, token)
	}
}
