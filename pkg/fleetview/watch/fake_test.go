package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

// cluster is a kube-apiserver in memory, with ConfigMaps: it answers lists in pages and
// watches, and forgets its history when it is told so.
type cluster struct {
	name, uid string

	mu      sync.Mutex
	now     int // the newest version
	oldest  int // the oldest version that can be watched from
	objects map[string]*corev1.ConfigMap
	history []change
	changed chan struct{} // closed at each change
	// refuse is the answer to all requests, if it is not 0, noWatch to watches and refuseLists to lists; away makes RoundTrip return an
	// error, and frozen keeps it from returning.
	refuse       int
	noWatch      int
	refuseLists  int
	away, frozen bool
	// columns are those of Tables, behind the name.
	columns []metav1.TableColumnDefinition
	// raw replaces the body of watches, and gone makes it an ERROR with 410.
	raw  string
	gone bool
	// initial says what the cluster does if it is asked for initial events.
	initial initialEvents
	// wholeOnly answers 406 to requests for metadata.
	wholeOnly bool
	requests  []string
	open      map[*io.PipeWriter]bool
}

func newCluster(name string, names ...string) *cluster {
	c := &cluster{name: name, uid: "uid-of-" + name, now: 100, oldest: 100, objects: map[string]*corev1.ConfigMap{}, changed: make(chan struct{}), open: map[*io.PipeWriter]bool{}}
	for _, name := range names {
		c.set(name)
	}
	return c
}

func (c *cluster) Name() string { return c.name }
func (c *cluster) UID() string  { return c.uid }

// change is an entry of the history.
type change struct {
	kind    string
	version int
	object  *corev1.ConfigMap
}

func (c *cluster) change(kind string, object *corev1.ConfigMap) {
	object.TypeMeta = configMap
	object.ResourceVersion = strconv.Itoa(c.now)
	c.history = append(c.history, change{kind, c.now, object})
	close(c.changed)
	c.changed = make(chan struct{})
}

// set creates or updates an object.
func (c *cluster) set(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	old, ok := c.objects[name]
	object := &corev1.ConfigMap{Data: map[string]string{"version": strconv.Itoa(c.now)}}
	object.Name, object.Namespace, object.UID = name, "ns", types.UID(fmt.Sprintf("%s-%s-%d", c.name, name, c.now))
	kind := encoding.Added
	if ok {
		kind, object.UID = encoding.Modified, old.UID
	}
	c.objects[name] = object
	c.change(kind, object)
}

func (c *cluster) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	object := c.objects[name].DeepCopy()
	delete(c.objects, name)
	c.change(encoding.Deleted, object)
}

// bookmark moves the version, as writes of other objects do, and says so in watches.
func (c *cluster) bookmark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += 10
	c.change(encoding.Bookmark, &corev1.ConfigMap{})
}

// cut ends all watches. With forget, versions before now are expired.
func (c *cluster) cut(forget bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.open {
		w.CloseWithError(errors.New("connection reset"))
	}
	if forget {
		c.now++
		c.oldest = c.now
	}
}

func (c *cluster) with(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// asked returns the requests since it was asked last.
func (c *cluster) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests := c.requests
	c.requests = nil
	return requests
}

func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.requests = append(c.requests, r.URL.RawQuery)
	refuse, away, frozen := c.refuse, c.away, c.frozen
	if c.wholeOnly && strings.Contains(r.Header.Get("Accept"), ";as="+encoding.AsMetadata) {
		refuse = http.StatusNotAcceptable
	}
	if c.noWatch != 0 && r.URL.Query().Has("watch") {
		refuse = c.noWatch
	}
	if c.refuseLists != 0 && !r.URL.Query().Has("watch") {
		refuse = c.refuseLists
	}
	c.mu.Unlock()
	switch {
	case frozen:
		<-r.Context().Done()
		return nil, errors.New("no answer")
	case away:
		return nil, errors.New("no tunnel since 10:02")
	case refuse != 0:
		return answer(refuse, failure(refuse, fmt.Sprintf("%s says %d", c.name, refuse))), nil
	}
	if r.URL.Query().Has("watch") {
		return c.watch(r)
	}
	return c.list(r), nil
}

func failure(code int, message string) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Message: message, Code: int32(code)}
}

func answer(code int, object runtime.Object) *http.Response {
	header := http.Header{"Content-Type": {runtime.ContentTypeJSON}}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(encoded(object)))}
}

const pageOfFake = 2

// list shows pages of 2 objects. Items do not say what they are, as those of built-in
// kinds.
func (c *cluster) list(r *http.Request) *http.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	query := r.URL.Query()
	if at := query.Get("resourceVersion"); at != "" && at != strconv.Itoa(c.now) {
		return answer(http.StatusGone, failure(http.StatusGone, "too old"))
	}
	var names []string
	for name := range c.objects {
		if name > query.Get("continue") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	next := ""
	if len(names) > pageOfFake {
		names = names[:pageOfFake]
		next = names[pageOfFake-1]
	}
	list := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
	list.ResourceVersion, list.Continue = strconv.Itoa(c.now), next
	for _, name := range names {
		object := *c.objects[name]
		object.TypeMeta = metav1.TypeMeta{}
		list.Items = append(list.Items, object)
	}
	return answer(http.StatusOK, c.transformed(wantsOf(r), list, true))
}

func wantsOf(r *http.Request) wants {
	return wants{r.Header.Get("Accept"), r.URL.Query().Get("includeObject")}
}

func (c *cluster) watch(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	initial := c.initial != noInitial && r.URL.Query().Get("sendInitialEvents") == "true"
	if err != nil && !initial {
		return answer(http.StatusBadRequest, failure(http.StatusBadRequest, "no version")), nil
	}
	if from < c.oldest && !initial {
		return answer(http.StatusGone, failure(http.StatusGone, "too old")), nil
	}
	in, out := io.Pipe()
	c.open[out] = true
	if c.raw != "" || c.gone {
		raw := c.raw
		if c.gone {
			raw = string(framed(encoding.Failed, failure(http.StatusGone, "too old")))
		}
		go func() { fmt.Fprint(out, raw); out.Close() }()
	} else if initial {
		go c.sendInitial(r.Context(), wantsOf(r), out)
	} else {
		go c.send(r.Context(), wantsOf(r), out, from)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: in}, nil
}

func (c *cluster) send(ctx context.Context, w wants, out *io.PipeWriter, from int) {
	defer out.Close()
	headers := true
	for i := 0; ; {
		c.mu.Lock()
		history, changed := c.history[i:], c.changed
		c.mu.Unlock()
		for _, e := range history {
			i++
			if e.version <= from {
				continue
			}
			if _, err := out.Write(framed(e.kind, c.transformed(w, e.object, headers))); err != nil {
				return
			}
			headers = false
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// fixture is a view of clusters, in a process.
type fixture struct {
	t  *testing.T
	mu sync.Mutex
	// clusters are what Options.Members returns.
	clusters []*cluster
	options  Options
}

func newFixture(t *testing.T, clusters ...*cluster) *fixture {
	f := &fixture{t: t, clusters: clusters}
	f.options = Options{
		Path: "/api/v1/configmaps", Forms: []encoding.Form{{}}, MemberTimeout: 5 * time.Second, Clock: new(version.Clock), Positions: new(position.Store), Owner: "jane",
		Members: func(context.Context) ([]Member, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			var members []Member
			for _, c := range f.clusters {
				members = append(members, c)
			}
			return members, nil
		},
		Rewriter: func(m Member, version func(string) string) *merge.Rewriter {
			return &merge.Rewriter{Cluster: m.Name(), Annotations: []string{"cluster"}, Version: version}
		},
	}
	return f
}

func (f *fixture) set(clusters ...*cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clusters = clusters
}

// listed returns the version of a list of all clusters as they are now.
func (f *fixture) listed() version.Version {
	at, versions := f.options.Clock.Now(), map[string]string{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clusters {
		c.with(func() { versions[c.uid] = strconv.Itoa(c.now) })
	}
	f.options.Positions.RecordPage(f.options.Owner, at, 0, true, versions)
	return at
}

// client is a watch. Its events are short texts: type, cluster/name, and for bookmarks
// whether it is the initial one, and what it says that the client lacks.
type client struct {
	t      *testing.T
	f      *fixture
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	header http.Header
	code   int
	body   bytes.Buffer
	// wait keeps Write from returning until it is closed.
	wait chan struct{}
	last string
	// whole says that the client wants whole objects.
	whole bool
}

func (c *client) Header() http.Header { return c.header }
func (c *client) WriteHeader(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.code = code
}
func (c *client) Flush() {}
func (c *client) block(until chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait = until
}
func (c *client) Write(p []byte) (int, error) {
	c.mu.Lock()
	wait := c.wait
	c.mu.Unlock()
	if wait != nil {
		<-wait
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.body.Write(p)
}

// watch begins a watch; it runs in the bubble of the test.
func (f *fixture) watch(more func(o *Options)) *client {
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{t: f.t, f: f, cancel: cancel, done: make(chan struct{}), header: http.Header{}}
	o := f.options
	o.Now, _ = o.Members(ctx)
	more(&o)
	c.whole = o.Forms[len(o.Forms)-1].As == "" // the others are not to be had
	go func() {
		defer close(c.done)
		Serve(c, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), o)
	}()
	return c
}

func (c *client) stop() {
	c.cancel()
	<-c.done
}

// events returns what has arrived since it was asked last, once nothing moves any more.
// It checks that versions grow.
func (c *client) events() []string {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []string
	for _, e := range decoded(c.t, c.body.Bytes()) {
		if e.Type == encoding.Failed {
			got = append(got, encoding.Failed)
			continue
		}
		object := e.Object.Object.(metav1.Object)
		text := e.Type
		if e.Type != encoding.Bookmark {
			text += " " + object.GetAnnotations()["cluster"] + "/" + object.GetName()
		}
		if object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "" {
			text += " initial"
		}
		if missing := object.GetAnnotations()[AnnotationMissing]; missing != "" {
			text += " lacks " + missing
		}
		got = append(got, text)
		if whole, ok := object.(*corev1.ConfigMap); ok && c.whole && (e.Type == encoding.Added || e.Type == encoding.Modified) && whole.Data["version"] == "" {
			c.t.Errorf("event %s: its object %v is not whole", e.Type, whole)
		}
		if _, ok := object.(*corev1.ConfigMap); ok != c.whole {
			c.t.Errorf("event %s is about %T", e.Type, object)
		}
		if object.GetResourceVersion() <= c.last {
			c.t.Errorf("event %s of %v: its version is not greater than %q", e.Type, object, c.last)
		}
		c.last = object.GetResourceVersion()
	}
	c.body.Reset()
	return got
}
