//go:build benchfleet

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
)

// place is where requests go: a cluster, or a view.
type place struct {
	client *http.Client
	base   string
}

// newPlace has connections of its own. Its answers are not compressed, as those of the
// clients that Karmada was measured with.
func newPlace(t *testing.T, cfg *rest.Config) place {
	t.Helper()
	plain := rest.CopyConfig(cfg)
	plain.DisableCompression = true
	return place{load.Caller(t, plain), strings.TrimSuffix(cfg.Host, "/")}
}

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// listForm is how a list is asked for.
type listForm struct {
	name, accept string
	// limit is that of a page; 0 asks for everything at once.
	limit int
	// marker is in each item once, and nowhere else.
	marker string
	// karmada is how many times as long as direct access Karmada's answer takes, and cpu
	// what karmada-search and the hub's kube-apiserver use for 1,000 objects.
	karmada, cpu string
}

// listForms have Karmada's figures with pods of the same size of 3 clusters, on a quiet
// machine: 7,905, 7,378 and 6,271 ms for 6,000 pods, 8.97 + 0.41, 10.1 + 0.18 and
// 5.4 + 0.23 s of CPU.
func listForms() []listForm {
	return []listForm{
		{"JSON", "application/json", 0, `"restartPolicy":`, "10.3", "1.6"},
		{"Table", asTable, 0, `"cells":`, "21.6", "1.7"},
		{"Table in pages of 500", asTable, 500, `"cells":`, "11.1", "0.94"},
	}
}

// itemCounter counts how often a marker is in what is written.
type itemCounter struct {
	marker []byte
	// first is when the first one was there.
	first        time.Time
	items, bytes int
	tail         []byte
}

func (c *itemCounter) Write(p []byte) (n int, err error) {
	n = len(p)
	keep := len(c.marker) - 1
	border := slices.Concat(c.tail, p[:min(keep, len(p))])
	c.items += bytes.Count(border, c.marker) + bytes.Count(p, c.marker)
	if c.items > 0 && c.first.IsZero() {
		c.first = time.Now()
	}
	c.bytes += n
	if n < keep {
		p = border
	}
	c.tail = append(c.tail[:0], p[max(0, len(p)-keep):]...)
	return n, nil
}

// listed is what a list of all pages has.
type listed struct {
	items, bytes int
	// first is how long the first item took to arrive, and slowest the longest that a page
	// let wait for its first item, or for its end if it has none.
	first, slowest time.Duration
	warnings       []string
}

// list gets all pages of a list.
func (p place) list(ctx context.Context, path string, form listForm) (listed, error) {
	var all listed
	began := time.Now()
	for token, more := "", true; more; {
		query := url.Values{}
		if form.limit > 0 {
			query.Set("limit", strconv.Itoa(form.limit))
		}
		if token != "" {
			query.Set("continue", token)
		}
		counter := &itemCounter{marker: []byte(form.marker)}
		asked := time.Now()
		var err error
		if token, err = p.page(ctx, path+"?"+query.Encode(), form, counter, &all); err != nil {
			return all, err
		}
		waited := time.Since(asked)
		if counter.items > 0 {
			waited = counter.first.Sub(asked)
		}
		all.slowest = max(all.slowest, waited)
		if all.first == 0 && counter.items > 0 {
			all.first = counter.first.Sub(began)
		}
		all.items, all.bytes = all.items+counter.items, all.bytes+counter.bytes
		more = token != ""
	}
	return all, nil
}

// page gets one answer, and returns the token to go on with.
func (p place) page(ctx context.Context, path string, form listForm, counter *itemCounter, all *listed) (token string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", form.accept)
	resp, err := p.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return "", fmt.Errorf("%s answered %s: %s", path, resp.Status, text)
	}
	all.warnings = append(all.warnings, resp.Header.Values("Warning")...)
	if form.limit == 0 {
		_, err = io.Copy(counter, resp.Body)
		return "", err
	}
	var body bytes.Buffer
	if _, err := io.Copy(io.MultiWriter(counter, &body), resp.Body); err != nil {
		return "", err
	}
	_, rest, found := bytes.Cut(body.Bytes(), []byte(`"continue":"`))
	if !found {
		return "", nil
	}
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(text), nil
}

// listEach lists places at the same time, and returns what they have together.
func listEach(ctx context.Context, places []place, path string, form listForm) (listed, error) {
	parts := make([]listed, len(places))
	group, ctx := errgroup.WithContext(ctx)
	for i, p := range places {
		group.Go(func() (err error) {
			parts[i], err = p.list(ctx, path, form)
			return err
		})
	}
	err := group.Wait()
	var all listed
	for _, part := range parts {
		all.items, all.bytes = all.items+part.items, all.bytes+part.bytes
		if all.first == 0 || part.first < all.first {
			all.first = part.first
		}
	}
	return all, err
}

// growth measures the largest memory of processes, in MiB more than now, until its result
// is called. It counts what a process has of its own, and not pages of its program.
func growth(t *testing.T, processes []string) (end func() float64) {
	t.Helper()
	before := 0.0
	for _, dir := range processes {
		// 5 sets the high-water mark to what is used now; see proc_pid_clear_refs(5).
		if err := os.WriteFile(filepath.Join(dir, "clear_refs"), []byte("5"), 0); err != nil {
			t.Fatal(err)
		}
		before += load.StatusOf(t, dir)["RssAnon"]
	}
	return func() float64 {
		most := 0.0
		for _, dir := range processes {
			sizes := load.StatusOf(t, dir)
			most += sizes["VmHWM"] - sizes["RssFile"] - sizes["RssShmem"]
		}
		return max(0, most-before) / 1024
	}
}

// proxyAPIs are the processes that serve views.
func proxyAPIs(t *testing.T) []string {
	t.Helper()
	all, err := load.Relays()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(dir string) bool {
		arguments, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		return err != nil || !slices.Contains(strings.Split(string(arguments), "\x00"), "proxy-api")
	})
}

// comparison lists the same objects straight and through a view.
type comparison struct {
	// name begins the names of figures.
	name  string
	path  string
	items int
	// members and view answer.
	members []place
	view    place
	// serving are the processes whose memory counts, and all those whose CPU does.
	serving, all []string
}

// lists compares in rounds, after one that warms up. Memory counts from the first answer
// on, as memory that was taken once is not asked for again.
func (c comparison) lists(t *testing.T, results *fleetResults) {
	for round := range 1 + load.Rounds {
		for _, form := range listForms() {
			for _, side := range sides(round) {
				t.Logf("%s, %s, %s (%d of %d)", c.name, form.name, side, round, load.Rounds)
				c.list(t, results, form, side, round > 0)
			}
		}
	}
}

func (c comparison) list(t *testing.T, results *fleetResults, form listForm, side string, counts bool) {
	t.Helper()
	places := c.members
	if side == ofView {
		places = []place{c.view}
	}
	cpuBefore, _ := load.Usage(t, c.all)
	most := growth(t, c.serving)
	began := time.Now()
	got, err := listEach(t.Context(), places, c.path, form)
	took := time.Since(began)
	if err != nil {
		t.Fatalf("%s, %s, %s: %v", c.name, form.name, side, err)
	}
	if got.items != c.items {
		t.Errorf("%s, %s, %s: %d items, want %d", c.name, form.name, side, got.items, c.items)
	}
	if side == ofView {
		results.add(c.name+": largest memory growth, MiB", side, most())
	}
	if !counts {
		return
	}
	if side == direct {
		results.noteOnce("%s, %s: %.1f MB direct", c.name, form.name, float64(got.bytes)/1e6)
	}
	results.add(c.name+", "+form.name+", ms", side, took.Seconds()*1e3)
	if side == ofView {
		cpuAfter, _ := load.Usage(t, c.all)
		results.add(c.name+", "+form.name+": CPU s per 1,000", side, (cpuAfter-cpuBefore)/float64(c.items)*1000)
	}
}

// measureLists compares lists of 6,000 pods of 3 clusters.
func measureLists(t *testing.T, results *fleetResults) {
	makePods(t, benchNamespace, podsEach)
	all, err := load.Relays()
	if err != nil {
		t.Fatal(err)
	}
	comparison{
		name: labLists, path: podsPath, items: podsEach * len(benchClusters()), members: directPlaces(t), view: newPlace(t, viewEndpoint().Cfg),
		serving: proxyAPIs(t), all: all,
	}.lists(t, results)
}

// measureGets compares one object by name with the same object straight, and with the
// single-cluster endpoint.
func measureGets(t *testing.T, results *fleetResults) {
	makePods(t, benchNamespace, podsEach)
	cluster := benchClusters()[0]
	name := benchPod(cluster, 0).Name
	single := load.Installed.ThroughProxyAPI(cluster)
	single.BearerToken = load.Installed.HubToken
	view := viewEndpoint().Cfg
	type way struct {
		name, object string
		cfg          *rest.Config
	}
	ways := []way{{direct, name, load.Installed.Direct(cluster)}, {"single", name, single}, {"qualified", name + "@" + cluster, view}, {"plain", name, view}}
	for _, workers := range []int{1, 16} {
		for round := range load.Rounds {
			for _, way := range load.InTurn(ways, round) {
				t.Logf("gets, %s, %d at a time (%d of %d)", way.name, workers, round+1, load.Rounds)
				ctx, cancel := context.WithTimeout(t.Context(), load.WarmUp+load.Measured)
				rate, _ := load.Send(ctx, t, way.cfg, podsPath+"/"+way.object, workers, http.StatusOK)
				cancel()
				switch way.name {
				case direct:
					results.add(fmt.Sprintf(getQualified, workers), direct, rate)
					results.add(fmt.Sprintf(getPlain, workers), direct, rate)
				case "single":
					results.add(fmt.Sprintf(getSingle, workers), direct, rate)
				case "qualified":
					results.add(fmt.Sprintf(getQualified, workers), ofView, rate)
					results.add(fmt.Sprintf(getSingle, workers), ofView, rate)
				case "plain":
					results.add(fmt.Sprintf(getPlain, workers), ofView, rate)
				}
			}
		}
	}
}
