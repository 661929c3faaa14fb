package proxyapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/replica"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
	"open-cluster-management.io/cluster-proxy/pkg/recording"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// shell is a kubelet whose commands echo what they read until that ends, then write out and
// failures, and end. Of a terminal they await two sizes first.
type shell struct{ out, failures []byte }

func (s *shell) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return
	}
	want := 4
	var mu sync.Mutex
	streams, complete := map[string]httpstream.Stream{}, make(chan struct{})
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			mu.Lock()
			defer mu.Unlock()
			if streams[s.Headers().Get("streamtype")] = s; len(streams) == want {
				close(complete)
			}
		}()
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	select {
	case <-complete:
	case <-conn.CloseChan():
		return
	}
	if sizes := streams["resize"]; sizes != nil {
		decoder, size := json.NewDecoder(sizes), remotecommand.TerminalSize{}
		for range 2 {
			if decoder.Decode(&size) != nil {
				return
			}
		}
	}
	_, _ = io.Copy(streams["stdout"], streams["stdin"])
	for out, errs := s.out, s.failures; len(out) > 0; out, errs = out[min(len(out), 7001):], errs[min(len(errs), 3001):] {
		_, _ = streams["stdout"].Write(out[:min(len(out), 7001)])
		if streams["stderr"] != nil {
			_, _ = streams["stderr"].Write(errs[:min(len(errs), 3001)])
		}
	}
	_ = json.NewEncoder(streams["error"]).Encode(metav1.Status{Status: metav1.StatusSuccess})
	for _, stream := range streams {
		stream.Close()
	}
	<-conn.CloseChan()
}

// sizes is a queue of a terminal's.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

// terminalSizes are two.
func terminalSizes() sizes {
	s := make(sizes, 2)
	s <- remotecommand.TerminalSize{Width: 120, Height: 40}
	s <- remotecommand.TerminalSize{Width: 33, Height: 7}
	close(s)
	return s
}

type executor = func(*restclient.Config, string, *url.URL) (remotecommand.Executor, error)

var executors = map[string]executor{"SPDY": remotecommand.NewSPDYExecutor, "WebSocket": webSocketExecutor}

// recorded is a world whose sessions are recorded, in the folder that it returns.
func recorded(t *testing.T, s *shell, change func(*Options)) (w *world, dir string) {
	t.Helper()
	dir = t.TempDir()
	w = sessionWorld(t, func(t *testing.T, prepare func(*Server)) *world {
		return startWith(t, prepare, func(o *Options) { o.Recording.Dir = dir }, change)
	})
	w.agent("cluster1", kubeAPIServerOf(t, s.ServeHTTP), "cluster1")
	return w, dir
}

// exec runs a command of the shell.
func (w *world) exec(how executor, path, stdin string, tty bool) (stdout, stderr []byte, err error) {
	w.t.Helper()
	query := "?container=main&command=secret&stdin=true&stdout=true"
	if tty {
		query += "&tty=true"
	} else {
		query += "&stderr=true"
	}
	u, err := url.Parse(w.url + "/cluster1" + path + query)
	if err != nil {
		w.t.Fatal(err)
	}
	e, err := how(w.config("jane"), http.MethodPost, u)
	if err != nil {
		w.t.Fatal(err)
	}
	var out, errs bytes.Buffer
	options := remotecommand.StreamOptions{Stdin: strings.NewReader(stdin), Stdout: &out, Tty: tty}
	if tty {
		options.TerminalSizeQueue = terminalSizes()
	} else {
		options.Stderr = &errs
	}
	err = e.StreamWithContext(context.Background(), options)
	return out.Bytes(), errs.Bytes(), err
}

const execPath = "/api/v1/namespaces/ns/pods/pod/exec"

// theRecording waits until there is one, which is complete, and returns what it has.
func theRecording(t *testing.T, dir string) (header recording.Header, got [4]string, end string) {
	t.Helper()
	eventually(t, func() bool {
		files, err := filepath.Glob(dir + "/*/*")
		if err != nil || len(files) != 1 {
			return false
		}
		raw, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		reader, err := recording.NewReader(bytes.NewReader(raw))
		if err != nil {
			return false
		}
		header, got = reader.Header, [4]string{}
		for {
			event, err := reader.Next()
			if err != nil {
				return errors.Is(err, io.EOF)
			}
			got[event.Stream] += string(event.Data)
			end = event.End
		}
	})
	return header, got, end
}

// TestRecording has the bytes that a user sees and those of the recording be the same.
func TestRecording(t *testing.T) {
	s := &shell{out: make([]byte, 700<<10), failures: make([]byte, 300<<10)}
	_, _ = rand.Read(s.out)
	_, _ = rand.Read(s.failures)
	typed := strings.Repeat("typed \x00\xff text\n", 1000)
	for name, how := range executors {
		for _, tty := range []bool{false, true} {
			for _, closed := range []bool{false, true} {
				w, dir := recorded(t, s, func(o *Options) { o.Recording.Stdin, o.Recording.FailClosed = closed, closed })
				stdout, stderr, err := w.exec(how, execPath, typed, tty)
				if err != nil || string(stdout) != typed+string(s.out) || !tty && string(stderr) != string(s.failures) {
					t.Errorf("%s: the user has seen %d and %d bytes, %v", name, len(stdout), len(stderr), err)
				}
				header, got, end := theRecording(t, dir)
				if got[recording.Output] != string(stdout) || got[recording.ErrorOutput] != string(stderr) || end != "the session has ended" {
					t.Errorf("%s, tty %t: the recording has %d and %d bytes, want %d and %d that are the same; end %q", name, tty, len(got[0]), len(got[1]), len(stdout), len(stderr), end)
				}
				wantIn, wantSizes := "", ""
				if closed {
					wantIn = typed
				}
				if tty {
					wantSizes = "120x4033x7"
				}
				if got[recording.Input] != wantIn || got[3] != wantSizes {
					t.Errorf("%s, tty %t: %d bytes of input and sizes %q, want %d and %q", name, tty, len(got[recording.Input]), got[3], len(wantIn), wantSizes)
				}
				of := header.Session
				if of.User != "jane" || of.Kind != "exec" || of.Cluster != "cluster1" || of.Target != "ns/pod/main" || !replica.SessionName.MatchString(of.Name) || strings.Contains(header.Title, "secret") {
					t.Errorf("%s: the header is %+v", name, header)
				}
				w.stop()
				if err := w.ended(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestRecordingPolicy has clusters and requests that are recorded, and others.
func TestRecordingPolicy(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*session.RecordingOptions)
		path   string
		want   int
	}{
		"all":            {change: func(*session.RecordingOptions) {}, path: execPath, want: 1},
		"by name":        {change: func(o *session.RecordingOptions) { o.Clusters = []string{"other", "cluster1"} }, path: execPath, want: 1},
		"by set":         {change: func(o *session.RecordingOptions) { o.ClusterSets = []string{"third", "pair"} }, path: execPath, want: 1},
		"no such set":    {change: func(o *session.RecordingOptions) { o.ClusterSets = []string{"third", "piar"} }, path: execPath, want: 1},
		"another one":    {change: func(o *session.RecordingOptions) { o.Clusters, o.ClusterSets = []string{"other"}, []string{"third"} }, path: execPath},
		"attach":         {change: func(*session.RecordingOptions) {}, path: "/api/v1/namespaces/ns/pods/pod/attach", want: 1},
		"by the kubelet": {change: func(*session.RecordingOptions) {}, path: "/api/v1/nodes/n/proxy/exec/ns/pod/main", want: 1},
		"a Service":      {change: func(*session.RecordingOptions) {}, path: "/api/v1/namespaces/ns/pods/pod/proxy/exec"},
	} {
		t.Run(name, func(t *testing.T) {
			w, dir := recorded(t, &shell{out: []byte("hello")}, func(o *Options) { tc.change(&o.Recording) })
			if _, _, err := w.exec(remotecommand.NewSPDYExecutor, tc.path, "", false); err != nil {
				t.Fatal(err)
			}
			if tc.want > 0 {
				if _, got, _ := theRecording(t, dir); got[recording.Output] != "hello" {
					t.Errorf("the recording has %q", got)
				}
			}
			if files, err := filepath.Glob(dir + "/*/*"); err != nil || len(files) != tc.want {
				t.Errorf("%v %v are files, want %d", files, err, tc.want)
			}
		})
	}
}

// TestRefusedSessionsHaveNoFile has a user whom the cluster refuses.
func TestRefusedSessionsHaveNoFile(t *testing.T) {
	w, dir := recorded(t, &shell{}, func(*Options) {})
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		status.Write(rw, status.New(http.StatusForbidden, "no").ErrStatus)
	}), "cluster1")
	if _, _, err := w.exec(remotecommand.NewSPDYExecutor, execPath, "", false); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("error %v, want the cluster's", err)
	}
	eventually(t, func() bool {
		files, err := filepath.Glob(dir + "/*/*")
		return err == nil && len(files) == 0
	})
}

// TestRecordingFails has volumes that are gone, and recordings that are too long.
func TestRecordingFails(t *testing.T) {
	const lookAfter = "ask the administrators of the hub to look after the volume of recordings"
	long := &shell{out: make([]byte, 4<<20)}
	for name, how := range executors {
		for _, closed := range []bool{true, false} {
			w, dir := recorded(t, long, func(o *Options) {
				o.Recording.FailClosed = closed
				o.Recording.MaxFileSize.Set("64Ki")
			})
			failed := func(outcome string) float64 {
				return testutil.ToFloat64(w.server.metrics.RecordingsFailed.WithLabelValues(outcome))
			}
			stdout, _, err := w.exec(how, execPath, "", false)
			if closed {
				if err == nil || !strings.Contains(err.Error(), "ended because it cannot be recorded any more: "+recording.ErrTooLong.Error()) || !strings.Contains(err.Error(), lookAfter) {
					t.Errorf("%s: the session ended with %v, want why it cannot be recorded", name, err)
				}
				if failed(metrics.SessionCut) != 1 {
					t.Errorf("%s: the metric is %v, want 1", name, failed(metrics.SessionCut))
				}
			} else if err != nil || len(stdout) != len(long.out) || failed(metrics.SessionUnrecorded) != 1 {
				t.Errorf("%s: the session ended with %v and %d bytes, metric %v; want it to go on", name, err, len(stdout), failed(metrics.SessionUnrecorded))
			}
			_, got, _ := theRecording(t, dir)
			if !strings.HasPrefix(string(long.out), got[recording.Output]) {
				t.Errorf("%s: the recording is no beginning of what the user saw", name)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			stdout, _, err = w.exec(how, execPath, "", false)
			switch {
			case closed && (err == nil || failed(metrics.SessionRejected) != 1):
				t.Errorf("%s: a session without a volume began: %v", name, err)
			case !closed && (err != nil || len(stdout) != len(long.out) || failed(metrics.SessionUnrecorded) != 2):
				t.Errorf("%s: the session ended with %v and %d bytes, want it to go on", name, err, len(stdout))
			}
			if resp, body := w.upgrade(execPath); closed && (resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, `sessions to cluster \"cluster1\" must be recorded`) || !strings.Contains(body, lookAfter) || strings.Contains(body, dir)) {
				t.Errorf("%s: %d %s, want 503 that says what to do", name, resp.StatusCode, body)
			}
		}
	}
}

// TestConnectIsRefusedBySet has CONNECT, which no recording can follow, to a cluster that is in a
// set of the policy, and to one of which that is not known.
func TestConnectIsRefusedBySet(t *testing.T) {
	for set, want := range map[string]int{"pair": http.StatusForbidden, "piar": http.StatusForbidden, "third": http.StatusOK} {
		w, _ := recorded(t, &shell{}, func(o *Options) { o.Recording.FailClosed, o.Recording.ClusterSets = true, []string{set} })
		if code := w.raw("CONNECT cluster1:443 HTTP/1.1\r\nHost: cluster1:443\r\nProxy-Authorization: Bearer jane\r\n\r\n"); code != want {
			t.Errorf("set %s: CONNECT: %d, want %d", set, code, want)
		}
		unknown := map[bool]float64{true: 1}[set == "piar"]
		if got := testutil.ToFloat64(w.server.metrics.RecordingSetsUnknown); got != unknown {
			t.Errorf("set %s: %v sets are unknown, want %v", set, got, unknown)
		}
	}
}

// upgrade sends a request for an upgrade that is refused.
func (w *world) upgrade(path string) (*http.Response, string) {
	w.t.Helper()
	return w.ask(http.MethodGet, "/cluster1"+path, "jane", "Connection", "Upgrade", "Upgrade", "websocket")
}

// TestUnrecordable has ways to a command that no recording can follow.
func TestUnrecordable(t *testing.T) {
	for _, closed := range []bool{true, false} {
		w, _ := recorded(t, &shell{}, func(o *Options) { o.Recording.FailClosed = closed })
		w.agent("cluster1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "cluster1")
		for _, tc := range []struct {
			method, path string
			refused      bool
		}{
			{http.MethodPost, "/api/v1/nodes/n/proxy/run/ns/pod/main", true},
			{http.MethodPut, "/api/v1/nodes/n:10250/proxy/run/ns/pod/main", true},
			{http.MethodGet, "/api/v1/nodes/n/proxy/metrics", false},
			{http.MethodPost, "/api/v1/namespaces/ns/pods", false},
		} {
			want := http.StatusOK
			if closed && tc.refused {
				want = http.StatusForbidden
			}
			for _, headers := range [][]string{nil, {"Connection", "Upgrade", "Upgrade", "websocket"}} {
				if resp, body := w.ask(tc.method, "/cluster1"+tc.path, "jane", headers...); resp.StatusCode != want {
					t.Errorf("fail closed %t: %s %s %q: %d %s, want %d", closed, tc.method, tc.path, headers, resp.StatusCode, body, want)
				}
			}
		}
		want := http.StatusOK
		if closed {
			want = http.StatusForbidden
		}
		if code := w.raw("CONNECT cluster1:443 HTTP/1.1\r\nHost: cluster1:443\r\nProxy-Authorization: Bearer jane\r\n\r\n"); code != want {
			t.Errorf("fail closed %t: CONNECT: %d, want %d", closed, code, want)
		}
	}
}

// TestFramesThatCannotBeRecorded has a cluster that answers with frames that a recording
// cannot have. The session ends or goes on, as the policy says.
func TestFramesThatCannotBeRecorded(t *testing.T) {
	for name, frames := range map[string]string{"compressed": "\xc2\x03\x01hi", "an absurd length": "\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff\x01hi"} {
		for _, closed := range []bool{true, false} {
			w, dir := recorded(t, &shell{}, func(o *Options) { o.Recording.FailClosed = closed })
			w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(rw).Hijack()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-Websocket-Protocol: v5.channel.k8s.io\r\n\r\n\x82\x05\x01seen"+frames)
				_, _ = io.Copy(io.Discard, conn)
			}), "cluster1")
			conn, answer := w.dialWith("GET /cluster1" + execPath + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-Websocket-Protocol: v5.channel.k8s.io\r\nAuthorization: Bearer jane\r\n\r\n")
			if _, err := io.CopyN(io.Discard, answer, 7); err != nil {
				t.Fatal(err)
			}
			if closed {
				_, _ = io.Copy(io.Discard, answer) // it ends
				if got := testutil.ToFloat64(w.server.metrics.RecordingsFailed.WithLabelValues(metrics.SessionCut)); got != 1 {
					t.Errorf("%s: the metric is %v, want 1", name, got)
				}
			} else {
				if _, err := io.CopyN(io.Discard, answer, int64(len(frames))); err != nil {
					t.Errorf("%s: the session does not go on: %v", name, err)
				}
				w.aSession()
			}
			conn.Close()
			if _, got, end := theRecording(t, dir); !strings.HasPrefix(got[recording.Output], "seen") || !strings.Contains(end, "not recorded any more") {
				t.Errorf("%s: the recording has %q, end %q", name, got, end)
			}
		}
	}
}

// TestRecordingsAreAudited has the audit log say where a recording is, or why there is none.
func TestRecordingsAreAudited(t *testing.T) {
	log, set := withAuditLog(t)
	w, recordings := recorded(t, &shell{out: []byte("hello")}, set)
	if _, _, err := w.exec(remotecommand.NewSPDYExecutor, execPath, "", false); err != nil {
		t.Fatal(err)
	}
	theRecording(t, recordings)
	files, err := filepath.Glob(recordings + "/*/*")
	if err != nil || len(files) != 1 {
		t.Fatalf("files are %v %v", files, err)
	}
	if err := os.RemoveAll(recordings); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.exec(remotecommand.NewSPDYExecutor, execPath, "", false); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, e := range w.eventsOf(t, log) {
		maps.Copy(said, e.Annotations)
	}
	if want, err := filepath.Rel(recordings, files[0]); err != nil || said[scope.AnnotationPrefix+"recording"] != want || !strings.HasPrefix(said[scope.AnnotationPrefix+"recording-failed"], "unrecorded: ") {
		t.Errorf("annotations are %q, want recording %s, and one that failed", said, want)
	}
}

// TestRecordingsAreNotServed has users, with the right to sessions and without, look for a
// recording at all ports. Names of pods that are paths or control a terminal are in it as text.
func TestRecordingsAreNotServed(t *testing.T) {
	const secret = "what jane has seen"
	w, dir := recorded(t, &shell{out: []byte(secret)}, func(o *Options) { o.UI = true })
	for _, pod := range []string{"%1b%5b2Jpod", "..pod", "%c2%9bpod", "pod%22%7d%0a", strings.Repeat("long", 60)} {
		if _, _, err := w.exec(remotecommand.NewSPDYExecutor, "/api/v1/namespaces/ns/pods/"+pod+"/exec", "", false); err != nil {
			t.Fatalf("%s: %v", pod, err)
		}
	}
	files, err := filepath.Glob(dir + "/*/*")
	if err != nil || len(files) != 5 {
		t.Fatalf("files are %q, %v; want 5", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil || bytes.ContainsFunc(raw, func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 }) {
			t.Errorf("%s has what controls a terminal: %v\n%q", file, err, raw)
		}
	}
	relative, err := filepath.Rel(dir, files[0])
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(filepath.Base(files[0])[len("150405-"):], ".")
	ports := map[string]http.Handler{"health": w.server.health.Handler()}
	for _, path := range []string{files[0], "/" + relative, "/recordings/" + relative, "/recordings", "/ui/" + relative, "/ui/../" + relative, "/ui/..%2f" + relative, "/ui/%2e%2e" + files[0],
		scope.GroupPath + "/sessions/" + name + "/recording", scope.GroupPath + "/sessions/" + name, scope.GroupPath + "/recordings/" + name, "/logs/" + relative, "/debug/" + relative, "/cluster1/..%2f" + relative} {
		for _, user := range []string{"ada", "jane", "eve", ""} {
			if resp, body := w.ask(http.MethodGet, path, user); strings.Contains(body, secret) || strings.Contains(body, `"version":2`) {
				t.Errorf("%s as %q: %d %s, want no recording", path, user, resp.StatusCode, body)
			}
		}
		for port, handler := range ports {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Header: http.Header{}})
			if strings.Contains(answer.Body.String(), secret) {
				t.Errorf("the port for %s serves %s", port, path)
			}
		}
	}
}
