package proxyapi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// growingAPI is a kube-apiserver with ConfigMaps that are never changed or deleted.
type growingAPI struct {
	mu      sync.Mutex
	maps    []string
	changed chan struct{}
}

func (a *growingAPI) add(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.maps = append(a.maps, fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","uid":"uid-%s","resourceVersion":"%d"}}`, name, name, len(a.maps)+2))
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *growingAPI) now() ([]string, chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.maps), a.changed
}

func (a *growingAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	maps, changed := a.now()
	if !r.URL.Query().Has("watch") {
		fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`, len(maps)+1, strings.Join(maps, ","))
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	from-- // the first ConfigMap has version 2, because 0 means any
	for {
		for ; from < len(maps); from++ {
			fmt.Fprintf(w, "{\"type\":\"ADDED\",\"object\":%s}\n", maps[from])
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
			maps, changed = a.now()
		}
	}
}

// mapWatcher watches the view until it is told where to go on.
type mapWatcher struct {
	t     *testing.T
	last  string
	mu    sync.Mutex
	names []string
}

// watch reads one watch to its end.
func (m *mapWatcher) watch(w *world) {
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, w.url+"/@all/api/v1/namespaces/shop/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion="+m.last, nil)
	if err != nil {
		m.t.Error(err)
		return
	}
	r.Header.Set("Authorization", "Bearer jane")
	response, err := w.client("http/1.1").Do(r)
	if err != nil {
		m.t.Error(err)
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		m.t.Errorf("a watch from %s: got %s, want 200", m.last, response.Status)
	}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		var event struct {
			Type   string
			Object struct {
				Metadata struct{ Name, ResourceVersion string }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil || event.Object.Metadata.ResourceVersion <= m.last {
			m.t.Errorf("got %s, %v, want an event later than %s", lines.Bytes(), err, m.last)
			return
		}
		m.last = event.Object.Metadata.ResourceVersion
		m.mu.Lock()
		if event.Type != "BOOKMARK" {
			m.names = append(m.names, event.Type+" "+event.Object.Metadata.Name)
		}
		m.mu.Unlock()
	}
}

func (m *mapWatcher) await(what string, want []string) {
	m.t.Helper()
	wait.Poll{Every: 5 * time.Millisecond}.Success(m.t, what, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(m.names))); diff != "" {
			return fmt.Errorf("the watch has got (-want +got):\n%s", diff)
		}
		return nil
	})
}

// TestWatchOverARollingRestart replaces proxy APIs one by one while a client watches a view
// under writes. It goes on at another one each time, and gets each event once.
func TestWatchOverARollingRestart(t *testing.T) {
	var seed string
	here := func(o *Options) {
		port, err := ports.Next()
		if err != nil {
			t.Fatal(err)
		}
		at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if seed == "" {
			seed = at
		}
		o.PeerBindAddress, o.PeerPort, o.Peers = "127.0.0.1", port, []string{seed}
		seed = at
	}
	first := start(t, here)
	first.addView("all", "cluster1", "cluster2")
	first.api.User("jane", "jane")
	first.api.Allow("jane get fleetviews all", "jane watch clusters/proxy *", "jane list clusters/proxy *")
	clusters := []*growingAPI{}
	for _, cluster := range []string{"cluster1", "cluster2"} {
		api := &growingAPI{changed: make(chan struct{})}
		clusters = append(clusters, api)
		first.agent(cluster, api, cluster)
	}
	var want []string
	write := func(name string) {
		for i, api := range clusters {
			api.add(fmt.Sprint(name, i))
			want = append(want, fmt.Sprint("ADDED ", name, i))
		}
	}
	m, now := &mapWatcher{t: t}, first
	var watching sync.WaitGroup
	watching.Go(func() { m.watch(first) })
	for round := range 4 {
		next := now.another(t, here)
		write(fmt.Sprint("before-", round, "-"))
		m.await(fmt.Sprintf("round %d, before it", round), want)
		wait.Poll{Every: 5 * time.Millisecond}.Success(t, "the new replica", func() error {
			if addresses, _ := now.server.peers.Live(); len(addresses) != 1 {
				return fmt.Errorf("the old one has peers %v", addresses)
			}
			return nil
		})
		now.stop()
		watching.Wait()
		write(fmt.Sprint("between-", round, "-"))
		if round%2 == 0 {
			if err := now.ended(); err != nil {
				t.Fatal(err)
			}
		}
		watching.Go(func() { m.watch(next) })
		m.await(fmt.Sprintf("round %d, at the new one", round), want)
		if err := now.ended(); err != nil {
			t.Fatal(err)
		}
		now = next
	}
	now.stop()
	watching.Wait()
}
