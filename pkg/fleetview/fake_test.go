package fleetview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// cluster is a member with a kube-apiserver in memory. Requests and answers are streams, as
// over a network.
type cluster struct {
	name string

	mu      sync.Mutex
	version int
	// objects are by path. Their versions are decimals.
	objects map[string]object
	// columns are those of its Tables behind Name.
	columns []string
	// expired makes continue tokens expire that are older than the cluster's version.
	expired bool
	// fault answers instead of the cluster if it reports true.
	fault    func(http.ResponseWriter, *http.Request) bool
	requests []asked
	changed  chan struct{}
	history  []change
}

// asked is a request as the cluster got it.
type asked struct {
	method, url string
	header      http.Header
	body        string
}

func newCluster(name string, paths ...string) *cluster {
	c := &cluster{name: name, version: 100, objects: map[string]object{}, changed: make(chan struct{})}
	for _, path := range paths {
		c.set(path, nil)
	}
	return c
}

// pods returns the paths of n pods.
func pods(n int) []string {
	var paths []string
	for i := range n {
		paths = append(paths, fmt.Sprintf("/api/v1/namespaces/shop/pods/web-%04d", i))
	}
	return paths
}

func (c *cluster) Name() string { return c.name }
func (c *cluster) UID() string  { return "uid-of-" + c.name }

// with changes a cluster that is asked meanwhile.
func (c *cluster) with(f func(c *cluster)) *cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
	return c
}

func (c *cluster) failing(fault func(http.ResponseWriter, *http.Request) bool) *cluster {
	return c.with(func(c *cluster) { c.fault = fault })
}

// asked returns the requests so far, without discovery, and forgets them.
func (c *cluster) asked() []asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests := c.requests
	c.requests = nil
	return requests
}

var errAway = errors.New("no tunnel since 10:02")

func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "" || r.URL.Host != "" || !strings.HasPrefix(r.URL.Path, "/") {
		return nil, fmt.Errorf("request for %q: want a path and a query", r.URL)
	}
	return roundTrip(c.ServeHTTP, r)
}

// roundTrip returns what a handler answers while it does.
func roundTrip(handler http.HandlerFunc, r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	out, in := io.Pipe()
	w := &answerWriter{header: http.Header{}, in: in, begun: make(chan struct{})}
	context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	go func() {
		defer in.Close()
		defer func() {
			if cause := recover(); cause != nil {
				in.CloseWithError(cause.(error))
				w.fail(cause.(error))
			}
			w.begin(http.StatusOK)
		}()
		handler(w, r.Clone(ctx))
	}()
	select {
	case <-w.begun:
	case <-ctx.Done():
		cancel()
		return nil, ctx.Err()
	}
	if w.err != nil {
		cancel()
		return nil, w.err
	}
	return &http.Response{
		StatusCode: w.code, Status: fmt.Sprint(w.code), Header: w.sent, Request: r, ContentLength: -1, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: &answerBody{ReadCloser: out, cancel: cancel},
	}, nil
}

type answerBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *answerBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// answerWriter is the http.ResponseWriter of a cluster.
type answerWriter struct {
	header, sent http.Header
	in           *io.PipeWriter
	once         sync.Once
	begun        chan struct{}
	code         int
	err          error
}

func (w *answerWriter) Header() http.Header { return w.header }
func (w *answerWriter) Flush()              {}

func (w *answerWriter) begin(code int) {
	w.once.Do(func() {
		w.code, w.sent = code, w.header.Clone()
		close(w.begun)
	})
}

// fail ends a request that has no answer yet.
func (w *answerWriter) fail(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.begun)
	})
}

func (w *answerWriter) WriteHeader(code int) { w.begin(code) }
func (w *answerWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.in.Write(p)
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			panic(err)
		}
	}
	c.mu.Lock()
	c.requests = append(c.requests, asked{r.Method, r.URL.String(), r.Header.Clone(), string(body)})
	fault := c.fault
	c.mu.Unlock()
	if fault == nil || !fault(w, r) {
		c.serve(w, r, body)
	}
}

// Faults of members.

func away(http.ResponseWriter, *http.Request) bool { panic(errAway) }

func silent(_ http.ResponseWriter, r *http.Request) bool {
	freeze(r)
	return true
}

func refusing(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		answerStatus(w, code, fmt.Sprintf("code %d is the answer to user ann", code))
		return true
	}
}

func saying(contentType, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
		return true
	}
}

// breaking sends the first bytes of the answer, and ends it as then does.
func breaking(c *cluster, after int, then func(*http.Request)) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		recorder := httptest.NewRecorder()
		c.serve(recorder, r, nil)
		for name, values := range recorder.Header() {
			w.Header()[name] = values
		}
		body := recorder.Body.Bytes()
		_, _ = w.Write(body[:min(after, len(body))])
		then(r)
		return true
	}
}

func freeze(r *http.Request) {
	<-r.Context().Done()
	panic(r.Context().Err())
}

func reset(*http.Request) { panic(errors.New("connection reset by peer")) }

// slow answers after a pause.
func slow(pause time.Duration) func(http.ResponseWriter, *http.Request) bool {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
		}
		return false
	}
}

// testView is a view of clusters. Nothing takes as long as its timeout.
func testView(clusters ...*cluster) fleet.View {
	members := make([]fleet.Member, len(clusters))
	for i, c := range clusters {
		members[i] = c
	}
	slices.SortFunc(members, func(a, b fleet.Member) int { return strings.Compare(a.Name(), b.Name()) })
	return fleet.View{
		Name: "all", User: "ann", Account: "ann", Timeout: time.Minute,
		Members: testViewOf(members),
		Relay: func(w http.ResponseWriter, r *http.Request, to fleet.Member) {
			w.Header().Set("Relayed-To", to.Name())
			_, _ = fmt.Fprintf(w, "%s %s", r.Method, r.URL)
		},
	}
}

func testViewOf(members []fleet.Member) func(context.Context) ([]fleet.Member, error) {
	return func(context.Context) ([]fleet.Member, error) { return members, nil }
}

// response is an answer of a view.
type response struct {
	code     int
	header   http.Header
	body     string
	warnings []string
	status   metav1.Status
	list     listed
}

// listed is a list, or a Table.
type listed struct {
	Kind, APIVersion string
	Metadata         metav1.ListMeta
	Items            []object
	Rows             []struct {
		Cells  []any
		Object object
	}
	ColumnDefinitions []metav1.TableColumnDefinition
}

// request sends a request to a handler. The header has names and values in turn.
func (h *Handler) request(t testing.TB, view fleet.View, method, url, body string, header ...string) (answer response) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	h.Serve(recorder, r, view)
	answer = response{code: recorder.Code, header: recorder.Header(), body: recorder.Body.String(), warnings: recorder.Header()["Warning"]}
	switch {
	case answer.code >= 300:
		if err := json.Unmarshal([]byte(answer.body), &answer.status); err != nil || answer.status.Kind != "Status" || int(answer.status.Code) != answer.code {
			t.Errorf("%s %s: got %d with %q, want a Status", method, url, answer.code, answer.body)
		}
	case strings.HasPrefix(recorder.Header().Get("Content-Type"), "application/json"):
		_ = json.Unmarshal([]byte(answer.body), &answer.list) // it may be an object
	}
	return answer
}

func (h *Handler) getList(t testing.TB, view fleet.View, url string, header ...string) response {
	t.Helper()
	return h.request(t, view, http.MethodGet, url, "", header...)
}

// names are NAME@CLUSTER of the objects of a list or Table, however the answer calls them.
func (r response) names() []string {
	names := []string{}
	add := func(o object) {
		cluster := "@" + o.meta()["annotations"].(map[string]any)[fleet.AnnotationCluster].(string)
		names = append(names, strings.TrimSuffix(o.name(), cluster)+cluster)
	}
	for _, item := range r.list.Items {
		add(item)
	}
	for _, row := range r.list.Rows {
		add(row.Object)
	}
	return names
}

// lacks are the Warnings of clusters whose objects are not shown.
func (r response) lacks() []string {
	return slices.DeleteFunc(slices.Clone(r.warnings), func(w string) bool { return !strings.Contains(w, "not shown") })
}
