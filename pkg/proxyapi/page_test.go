package proxyapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/apigroup"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/ui"
	"open-cluster-management.io/cluster-proxy/test/testkit/browser"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

func withUI(o *Options) { o.UI, o.AllowAnonymous = true, false }

// markup is what a hostile cluster says wherever it may say something.
const markup = `<img src=x onerror="window.owned=1"><script>window.owned=1</script>` + "\u202egnp.exe\x1b[31m"

// describedClusters say of themselves what people look at, and some of them markup.
type describedClusters struct {
	fakeClusters
	described map[string]v1alpha1.Cluster
}

func (d describedClusters) Describe(name string) v1alpha1.Cluster {
	c := d.described[name]
	return *c.DeepCopy()
}

func newDescribedClusters(count int) describedClusters {
	d := describedClusters{fakeClusters{}, map[string]v1alpha1.Cluster{}}
	sets := []string{"prod", "staging", "edge"}
	for i := range count {
		c := v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-cluster-%03d", sets[i%3], i+1),
			Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": sets[i%3], "region": fmt.Sprintf("region-%d", i%7)}}}
		seen := metav1.NewTime(time.Now().Add(-time.Duration(i) * 7 * time.Minute))
		c.Status = v1alpha1.ClusterStatus{Available: metav1.ConditionTrue, Version: fmt.Sprintf("v1.%d.%d", 34+i%3, i%5), LastSeen: &seen}
		switch {
		case i%41 == 1:
			c.Status.Available, c.Status.Reason, c.Status.Message = metav1.ConditionFalse, "ManagedClusterAddOnLeaseUpdateStopped", "Addon agent stopped updating its lease. "+markup
			c.Status.Version, c.Labels["evil"] = markup, markup
		case i%97 == 3:
			c.Status.Available, c.Status.Version, c.Status.LastSeen = metav1.ConditionUnknown, "", nil
		}
		d.fakeClusters[c.Name], d.described[c.Name] = time.Time{}, c
	}
	return d
}

// pageWorld has clusters, two views, root who sees all, jane who sees two, and bob who may
// list nothing.
func pageWorld(t *testing.T, count int, change ...func(*Options)) *world {
	w := startOf(t, newDescribedClusters(count), func(*Server) {}, append([]func(*Options){withUI}, change...)...)
	w.api.User("roots-token", "root")
	w.api.User("janes-token", "jane")
	w.api.User("bobs-token", "bob")
	w.api.Allow("root list clusters *", "jane list clusters *", "root get clusters/proxy *", "jane get clusters/proxy prod-cluster-001", "jane get clusters/proxy staging-cluster-002",
		"root list fleetviews *")
	all, prod := &proxyv1alpha1.FleetView{}, &proxyv1alpha1.FleetView{}
	all.Name, prod.Name, prod.Spec.Clusters.ClusterSets = "all", "prod", []string{"prod"}
	w.views.views = []*proxyv1alpha1.FleetView{all, prod}
	for _, name := range []string{"prod-cluster-001", "staging-cluster-002"} {
		w.agent(name, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "{}") }), name)
	}
	return w
}

// traffic makes requests to a cluster, so that there is something to plot.
func (w *world) traffic(t *testing.T, n int) {
	t.Helper()
	client := w.client()
	for range n {
		get(t, client, w.url+"/prod-cluster-001/version", http.Header{"Authorization": {"Bearer roots-token"}})
	}
}

func signIn(p *browser.Page, url, token string) {
	p.Go(url)
	p.WaitFor(`!!document.getElementById('signin') && !document.getElementById('signin').hidden && document.activeElement.id === 'token'`)
	p.Type(token)
	p.Press("Enter")
}

const rowsShown = `document.querySelectorAll('#board tbody tr').length`

// again makes the page ask now, as it does when the network is back.
func again(p *browser.Page) { p.Eval(`window.dispatchEvent(new Event('online'))`) }

// oneCluster matches the URL of a request for one cluster of newDescribedClusters.
var oneCluster = regexp.MustCompile(`-cluster-[0-9]|/clusters/`)

// checkPage holds what must be true of every page at its end.
func checkPage(t *testing.T, p *browser.Page, tokens ...string) {
	t.Helper()
	for _, problem := range p.Problems() {
		t.Errorf("the browser complains: %s", problem)
	}
	if got := p.Eval(`String(window.owned)`); got != `"undefined"` {
		t.Error("markup of a cluster was run")
	}
	if got := p.Eval(`document.querySelectorAll('main img, main script, main a, iframe').length`); got != "0" {
		t.Errorf("%s elements of a cluster's markup are in the page", got)
	}
	kept := p.Eval(`JSON.stringify([document.cookie, location.href, document.referrer, history.length, history.state, {...localStorage}, {...sessionStorage}, document.documentElement.outerHTML, document.getElementById('token').value])`)
	for _, token := range tokens {
		if strings.Contains(kept, token) {
			t.Errorf("the page keeps the token where others may find it: %s", kept)
		}
		for _, r := range p.Requests("") {
			if strings.Contains(r.URL, token) || strings.Contains(r.Headers["Referer"], token) || strings.Contains(r.Headers["Cookie"], token) {
				t.Errorf("a request shows the token: %+v", r)
			}
		}
	}
	for _, r := range p.Requests("") {
		if r.Headers["Referer"] != "" {
			t.Errorf("%s has a Referer: %s", r.URL, r.Headers["Referer"])
		}
		if path, _, _ := strings.Cut(r.URL, "?"); oneCluster.MatchString(path) {
			t.Errorf("a request for one cluster: %s", r.URL)
		}
	}
}

func TestPageAtTwoAndFiveHundredClusters(t *testing.T) {
	long.Test(t)
	for _, count := range []int{2, 500} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			browser.Needs(t)
			w := pageWorld(t, count)
			p := browser.Open(t, filepath.Join(w.dir, "proxy-api-ca.crt"))
			signIn(p, w.url+"/ui/", "roots-token")
			p.WaitFor(fmt.Sprintf(`%s === %d`, rowsShown, count))
			for i := range 4 {
				w.traffic(t, 3*i+1)
				again(p)
				p.WaitFor(fmt.Sprintf(`document.querySelector('#board').dataset.answers >= %d`, i+2))
			}
			lists, sessions := len(p.Requests("/v1alpha1/clusters")), len(p.Requests("/v1alpha1/sessions"))
			others := len(p.Requests("/apis/")) - lists - sessions
			if lists > 7 || sessions > 6 || others > 3 {
				t.Errorf("%d lists of clusters, %d of sessions and %d other requests for 5 looks at %d clusters, want one of each for each look, one without a token and 2 others", lists, sessions, others, count)
			}
			// The keyboard: to the filter, a word, down to the rows, and more of the first.
			p.Press("/")
			p.Type("staging-cluster-002")
			p.WaitFor(rowsShown + ` === 1`)
			p.Press("ArrowDown")
			p.Press("Enter")
			p.WaitFor(`document.activeElement.getAttribute('aria-expanded') === 'true' && document.activeElement.innerText.includes('<script>')`)
			p.Press("Escape")
			p.WaitFor(fmt.Sprintf(`%s === %d`, rowsShown, count))
			p.Eval(`document.getElementById('tab-views').click()`)
			p.WaitFor(`document.querySelectorAll('#views tbody tr').length === 2`)
			checkPage(t, p, "roots-token")
		})
	}
}

func TestPageShowsWhatJaneMaySee(t *testing.T) {
	long.Test(t)
	browser.Needs(t)
	w := pageWorld(t, 500)
	p := browser.Open(t, filepath.Join(w.dir, "proxy-api-ca.crt"))
	p.Go(w.url + "/ui/")
	p.WaitFor(`document.activeElement?.id === 'token'`)
	signIn(p, w.url+"/ui/", "wrong-token")
	p.WaitFor(`document.getElementById('signin-error').textContent.startsWith('Not accepted')`)
	signIn(p, w.url+"/ui/", "janes-token")
	p.WaitFor(rowsShown + ` === 2`)
	if got := p.Eval(`[...document.querySelectorAll('#board .name')].map(e => e.textContent).sort().join() + document.getElementById('tab-views').hidden`); got != `"prod-cluster-001,staging-cluster-002true"` {
		t.Errorf("jane sees %s, want her two clusters and no views", got)
	}
	checkPage(t, p, "janes-token", "wrong-token")
	// The link to her page is worth nothing to who has taken it.
	var link string
	if err := json.Unmarshal([]byte(p.Eval(`location.href`)), &link); err != nil {
		t.Fatal(err)
	}
	thief := browser.Open(t, filepath.Join(w.dir, "proxy-api-ca.crt"))
	thief.Go(link)
	thief.WaitFor(`document.activeElement?.id === 'token' && ` + rowsShown + ` === 0`)
	for _, r := range thief.Requests("/apis/") {
		if r.Headers["Authorization"] != "" {
			t.Errorf("a stolen link brings a credential: %+v", r)
		}
	}
	p.Eval(`document.getElementById('leave').click()`)
	p.WaitFor(rowsShown + ` === 0 && !document.getElementById('signin').hidden`)
	signIn(p, w.url+"/ui/", "bobs-token")
	p.WaitFor(`document.getElementById('failure').textContent.includes('does not let you list clusters') && document.getElementById('signin').hidden`)
}

// TestPageShowsSessions has one open whose pod and container are markup: a user chooses them,
// and who looks is an administrator.
func TestPageShowsSessions(t *testing.T) {
	long.Test(t)
	browser.Needs(t)
	w := pageWorld(t, 2)
	w.api.Allow("jane * clusters/proxy prod-cluster-001", "jane create clusters/stream prod-cluster-001", "root list sessions *")
	w.agent("prod-cluster-001", http.HandlerFunc(endless), "prod-cluster-001")
	conn, _ := w.dialWith("GET /prod-cluster-001/api/v1/namespaces/ns/pods/" + url.PathEscape(markup) + "/exec?container=" + url.QueryEscape(markup) +
		"&command=secret HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer janes-token\r\n\r\n")
	defer conn.Close()
	p := browser.Open(t, filepath.Join(w.dir, "proxy-api-ca.crt"))
	signIn(p, w.url+"/ui/", "roots-token")
	p.WaitFor(`!document.getElementById('tab-sessions').hidden`)
	p.Eval(`document.getElementById('tab-sessions').click()`)
	p.WaitFor(`document.querySelectorAll('#sessions tbody tr').length === 1 && document.getElementById('sessions').innerText.includes('<script>')`)
	p.WaitFor(`document.querySelectorAll('#sessions img, #sessions script').length === 0`)
	if got := p.Eval(`document.getElementById('sessions').innerText.search(/secret|\u202e|\u001b/)`); got != "-1" {
		t.Errorf("the sessions have a command, or what turns or colors text, at %s", got)
	}
	checkPage(t, p, "roots-token")
	p.Eval(`document.getElementById('leave').click()`)
	signIn(p, w.url+"/ui/", "janes-token")
	p.WaitFor(rowsShown + ` === 2 && document.getElementById('tab-sessions').hidden`)
}

// TestPageBehindAPrefix needs no token: something in front sends one, as kubectl proxy does.
func TestPageBehindAPrefix(t *testing.T) {
	long.Test(t)
	browser.Needs(t)
	w := pageWorld(t, 2)
	to, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"/deep/prefix", "/api/v1/namespaces/addons/services/https:cluster-proxy-addon-user:9092/proxy"} {
		front := httptest.NewServer(&httputil.ReverseProxy{
			Transport: w.client().Transport, ErrorLog: relay.Discard,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, prefix)
				r.Out.Header.Set("Authorization", "Bearer roots-token")
			},
		})
		p := browser.Open(t)
		p.Go(front.URL + prefix + "/ui")
		p.WaitFor(rowsShown + ` === 2 && document.getElementById('leave').hidden`)
		if got := p.Eval(`location.pathname`); got != `"`+prefix+`/ui/"` {
			t.Errorf("the page is at %s, want it below %s", got, prefix)
		}
		checkPage(t, p)
		front.CloseClientConnections()
		front.Close()
	}
}

// TestPageIsNotFramed has a page of another origin that wants to have this one in a frame,
// and one that holds on to it as its opener.
func TestPageIsNotFramed(t *testing.T) {
	browser.Needs(t)
	w := pageWorld(t, 2)
	other := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(rw, `<iframe id=f src="%s/ui/"></iframe>`, w.url)
	}))
	defer other.Close()
	defer other.CloseClientConnections()
	p := browser.Open(t, filepath.Join(w.dir, "proxy-api-ca.crt"))
	p.Go(other.URL)
	p.WaitFor(`document.readyState === 'complete'`)
	var refused bool
	for _, problem := range p.Problems() {
		refused = refused || strings.Contains(problem, "frame-ancestors")
	}
	if !refused || len(p.Requests("/ui/app.js")) > 0 {
		t.Errorf("the page was framed; the browser says: %v", p.Problems())
	}
}

// TestClustersPagesAreOfAnotherOrigin has a cluster that serves a page beside the others, and beside
// this one if there is one.
func TestClustersPagesAreOfAnotherOrigin(t *testing.T) {
	for _, page := range []bool{true, false} {
		testOtherOrigin(t, pageWorld(t, 2, func(o *Options) { o.UI = page }))
	}
}

func testOtherOrigin(t *testing.T, w *world) {
	t.Helper()
	w.agent("evil-cluster", nil, "evil-cluster")
	known := w.known.(describedClusters)
	known.fakeClusters["evil"], known.described["evil"] = time.Time{}, v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}
	w.agent("evil", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		rw.Header().Set("Content-Security-Policy", "default-src *")
		rw.Header().Set("Service-Worker-Allowed", "/")
		fmt.Fprint(rw, `<title>evil</title>`)
	}), "evil")
	header := http.Header{"Authorization": {"Bearer roots-token"}}
	for _, path := range []string{"/evil/index.html", scope.ClustersPath + "evil/proxy/index.html"} {
		resp, _ := get(t, w.client(), w.url+path, header)
		if got := resp.Header["Content-Security-Policy"]; resp.StatusCode != http.StatusOK || len(got) != 2 || got[0] != ui.Sandbox {
			t.Errorf("%s: %d with policies %q, want 200 with the sandbox first", path, resp.StatusCode, got)
		}
		if got := resp.Header.Get("Service-Worker-Allowed"); got != "" {
			t.Errorf("%s: Service-Worker-Allowed is %q, want none", path, got)
		}
	}
}

func TestPageIsServedIfAskedFor(t *testing.T) {
	w := start(t, func(o *Options) { withUI(o); o.Domain = "clusters.example" })
	client := w.client()
	if resp, body := get(t, client, w.url+"/ui/", nil); resp.StatusCode != http.StatusOK || !strings.Contains(body, "app.js") {
		t.Errorf("/ui/: %d, want the page", resp.StatusCode)
	}
	for _, name := range []string{"cluster1", "away", "no-such-cluster"} {
		if strings.Contains(fmt.Sprint(get(t, client, w.url+"/ui/"+name, nil)), "cluster2") {
			t.Errorf("/ui/%s speaks of clusters", name)
		}
	}
	r, err := http.NewRequest(http.MethodGet, w.url+"/ui/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "cluster1.clusters.example"
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("Content-Security-Policy") != "" {
		t.Errorf("/ui/ at a cluster's host: %d, want 401 and no policy", resp.StatusCode)
	}
	without := start(t)
	if resp, _ := get(t, without.client(), without.url+"/ui/", nil); resp.StatusCode == http.StatusOK {
		t.Error("/ui/ is served without --ui")
	}
}

func TestListOfFleetViews(t *testing.T) {
	w := pageWorld(t, 2)
	for token, want := range map[string]int{"roots-token": 200, "janes-token": 403, "unknown": 401} {
		resp, body := get(t, w.client(), w.url+apigroup.FleetViewsPath, http.Header{"Authorization": {"Bearer " + token}})
		if resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", token, resp.StatusCode, body, want)
		}
		var list proxyv1alpha1.FleetViewList
		if err := json.Unmarshal([]byte(body), &list); want == 200 && (err != nil || len(list.Items) != 2 || list.Kind != "FleetViewList") {
			t.Errorf("got %s, want two views", body)
		}
	}
	for _, query := range []string{"?fieldSelector=metadata.name%3Dall", "?labelSelector=a", "?watch=1", "/all"} {
		if resp, body := get(t, w.client(), w.url+apigroup.FleetViewsPath+query, http.Header{"Authorization": {"Bearer roots-token"}}); resp.StatusCode == http.StatusOK {
			t.Errorf("%s is answered: %s", query, body)
		}
	}
}
