package suite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// Ending is how pods end while there is traffic.
type Ending string

// A pod that is asked to end tells watches to come again, as every API server
// does: they end between two events, without an error. One that is killed
// cannot, and a clean end would be a lie.
const (
	Asked  Ending = "asked"
	Killed Ending = "killed"
)

// traffic is what clients of one cluster do while something happens to the
// system: short reads and writes on connections of their own through the proxy API,
// reads through the Go dialer, a watch, and an exec. Each client starts again what
// broke, as real ones do. They pause, so that they do not take the processors from what
// they look at.
type traffic struct {
	s       *Suite
	cluster string
	how     Ending
	ctx     context.Context
	cancel  context.CancelFunc
	clients sync.WaitGroup

	mu       sync.Mutex
	requests int
	failures []failure
	breaks   map[string]int // of watches and execs, each reported as an error
	events   int
	wrong    []string
}

// failure is a request that failed.
type failure struct {
	began, ended time.Time
	what         string
}

// startTraffic returns when every client has had its first success.
func (s *Suite) startTraffic(t *testing.T, cluster string, how Ending) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tr := &traffic{s: s, cluster: cluster, how: how, ctx: ctx, cancel: cancel, breaks: map[string]int{}}
	cs := Clientset(t, s.Direct(cluster))
	ns := Scratch(t, cs)
	if _, err := cs.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "count"}, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dialed := s.Dialer(t).RESTConfig(cluster)
	dialed.BearerToken, dialed.CAData = s.AdminToken[cluster], s.ClusterCA(cluster)
	pod, ready := WebPod(t, cs), &sync.WaitGroup{}
	for _, client := range []func(done func()){
		func(done func()) { tr.request("proxy API", Once, s.ThroughProxyAPI(cluster), done) },
		func(done func()) { tr.request("proxy API, writing", WriteOnce, s.ThroughProxyAPI(cluster), done) },
		func(done func()) { tr.request("Go dialer", Once, dialed, done) },
		func(done func()) { tr.watch(ns, done) },
		func(done func()) { tr.exec(webSocket, pod, done) },
		func(done func()) { tr.exec(overSPDY, pod, done) },
	} {
		ready.Add(1)
		tr.clients.Go(func() { client(sync.OnceFunc(ready.Done)) })
	}
	t.Cleanup(tr.stop)
	began := make(chan struct{})
	go func() { ready.Wait(); close(began) }()
	select {
	case <-began:
	case <-time.After(Timeout):
		t.Fatalf("not every client of %s has had a success in %s: %v %v", cluster, Timeout, tr.failures, tr.wrong)
	}
	tr.clients.Go(func() { tr.write(cs, ns) })
	return tr
}

func (tr *traffic) stop() {
	tr.cancel()
	tr.clients.Wait()
}

func (tr *traffic) note(change func()) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	change()
}

// pause waits a little, and reports whether to go on.
func (tr *traffic) pause(d time.Duration) bool {
	select {
	case <-tr.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// request makes a request each 150 ms, each on a connection of its own.
func (tr *traffic) request(what string, once func(context.Context, *rest.Config) error, cfg *rest.Config, done func()) {
	for tr.pause(150 * time.Millisecond) {
		began := time.Now()
		limited, cancel := context.WithTimeout(tr.ctx, 15*time.Second)
		err := once(limited, cfg)
		cancel()
		if tr.ctx.Err() != nil {
			return
		}
		tr.note(func() {
			tr.requests++
			if err != nil {
				tr.failures = append(tr.failures, failure{began, time.Now(), what + ": " + err.Error()})
			}
		})
		if err == nil {
			done()
		}
	}
}

// write changes the object that is watched, five times a second, without the
// addon.
func (tr *traffic) write(cs *kubernetes.Clientset, ns string) {
	for n := 1; tr.pause(200 * time.Millisecond); n++ {
		_, err := cs.CoreV1().ConfigMaps(ns).Patch(tr.ctx, "count", types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{})
		if err != nil && tr.ctx.Err() == nil {
			tr.note(func() { tr.wrong = append(tr.wrong, "writing: "+err.Error()) })
		}
	}
}

// watch follows the object and goes on after a break where it was. A number
// that is left out is a lost event.
func (tr *traffic) watch(ns string, done func()) {
	version, last := "", 0
	for tr.ctx.Err() == nil {
		err := tr.watchOnce(ns, &version, &last, done)
		if tr.ctx.Err() != nil || !tr.pause(200*time.Millisecond) {
			return
		}
		tr.ended("watch", err)
	}
}

// ended notes the end of a stream that its client did not ask for: it must be an
// error, but for a watch that is told to come again.
func (tr *traffic) ended(what string, err error) {
	tr.note(func() {
		// Client-go takes any end of SPDY for that of the command; test/chain looks at
		// what its socket reads.
		if what == "watch" && tr.how == Asked || what == string(overSPDY) {
			tr.breaks[what]++
			return
		}
		if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			tr.wrong = append(tr.wrong, fmt.Sprintf("%s ended cleanly though it was cut off: %v", what, err))
			return
		}
		tr.breaks[what]++
	})
}

func (tr *traffic) watchOnce(ns string, version *string, last *int, done func()) error {
	return WatchConfigMap(tr.ctx, tr.s.ThroughProxyAPI(tr.cluster), ns, "count", *version, func(raw json.RawMessage) error {
		var event struct {
			Type   string
			Object corev1.ConfigMap
		}
		if err := json.Unmarshal(raw, &event); err != nil {
			return err
		}
		n, err := strconv.Atoi(event.Object.Data["n"])
		if err != nil || event.Type == "ERROR" {
			return fmt.Errorf("event %q: %w", event.Type, err)
		}
		tr.note(func() {
			tr.events++
			if n > *last+1 {
				tr.wrong = append(tr.wrong, fmt.Sprintf("watch lost events %d to %d", *last+1, n-1))
			}
		})
		*version, *last = event.Object.ResourceVersion, n
		done()
		return nil
	})
}

// execBy is the protocol of an exec.
type execBy string

const (
	webSocket execBy = "exec"
	overSPDY  execBy = "exec by SPDY"
)

// exec reads numbers from a command that ends with its input.
func (tr *traffic) exec(by execBy, pod string, done func()) {
	for tr.ctx.Err() == nil {
		err := tr.execOnce(by, pod, done)
		if tr.ctx.Err() != nil || !tr.pause(200*time.Millisecond) {
			return
		}
		tr.ended(string(by), err)
	}
}

func (tr *traffic) execOnce(by execBy, pod string, done func()) error {
	cfg := tr.s.ThroughProxyAPI(tr.cluster)
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	url := cs.CoreV1().RESTClient().Get().Namespace("default").Resource("pods").Name(pod).SubResource("exec").
		Param("command", "sh").Param("command", "-c").Param("command", ShellWhileInput("i=0; while true; do i=$((i+1)); echo $i; sleep 0.5; done")).Param("stdin", "true").Param("stdout", "true").URL()
	executor, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, url.String())
	if by == overSPDY {
		executor, err = remotecommand.NewSPDYExecutor(cfg, http.MethodPost, url)
	}
	if err != nil {
		return err
	}
	silence, hold := io.Pipe()
	defer hold.Close()
	reader, writer := io.Pipe()
	defer reader.Close()
	var began atomic.Bool
	go func() {
		for lines, want := bufio.NewScanner(reader), 1; lines.Scan(); want++ {
			began.Store(true)
			if got := lines.Text(); got != strconv.Itoa(want) {
				tr.note(func() { tr.wrong = append(tr.wrong, fmt.Sprintf("%s said %q, want %d", by, got, want)) })
			}
			done()
		}
	}()
	err = executor.StreamWithContext(tr.ctx, remotecommand.StreamOptions{Stdin: silence, Stdout: writer})
	writer.Close()
	if err != nil && !began.Load() {
		// A connection that is closed in its handshake is EOF, and no end of a command.
		return fmt.Errorf("beginning: %v", err)
	}
	return err
}

// Disruption is a time in which requests may fail.
type Disruption struct{ From, Until time.Time }

// grace is how long after a disruption requests may still fail.
const grace = time.Second

// verdict ends the traffic and says what of the promises was broken: no request
// that began more than grace after one of the disruptions failed, no event was
// lost, nothing that was cut off ended cleanly.
func (tr *traffic) verdict(t *testing.T, disruptions []Disruption) {
	t.Helper()
	tr.stop()
	excused := 0
	const clock = "15:04:05.000"
	var during []string
	for _, d := range disruptions {
		during = append(during, d.From.Format(clock)+" to "+d.Until.Format(clock))
	}
	for _, f := range tr.failures {
		if slices.ContainsFunc(disruptions, func(d Disruption) bool { return f.ended.After(d.From) && f.began.Before(d.Until.Add(grace)) }) {
			excused++
			continue
		}
		t.Errorf("%s: a request failed that began at %s (disruptions: %s) and took %s: %s", tr.cluster, f.began.Format(clock), during, f.ended.Sub(f.began).Round(time.Millisecond), f.what)
	}
	for _, wrong := range tr.wrong {
		t.Errorf("%s: %s", tr.cluster, wrong)
	}
	if tr.events < 10 {
		t.Errorf("%s: the watch saw %d events only", tr.cluster, tr.events)
	}
	t.Logf("%s: %d requests, %d failed, of which %d in or within %s of a disruption %s; %d watch events, none lost; breaks reported as errors: %s",
		tr.cluster, tr.requests, len(tr.failures), excused, grace, during, tr.events, strings.TrimPrefix(fmt.Sprint(tr.breaks), "map"))
}

// UnderTraffic does something while clients of every cluster are at work, and
// a little longer, and holds the system to its promises.
func (s *Suite) UnderTraffic(t *testing.T, how Ending, do func() []Disruption) {
	t.Helper()
	s.Settle(t)
	var all []*traffic
	for _, cluster := range s.Clusters {
		all = append(all, s.startTraffic(t, cluster, how))
	}
	disruptions := do()
	s.Settle(t)
	all[0].pause(3 * time.Second)
	for _, tr := range all {
		tr.verdict(t, disruptions)
	}
}
