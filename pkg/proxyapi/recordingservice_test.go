package proxyapi

import (
	"crypto/rand"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
	"open-cluster-management.io/cluster-proxy/pkg/recording"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// recordingService keeps recordings in a folder.
type recordingService struct {
	t   testing.TB
	dir string
	// fails says how it fails; empty if it does not.
	fails atomic.Value
}

const serviceToken = "token-of-the-service"

func (s *recordingService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, below := strings.CutPrefix(r.URL.Path, "/tapes/")
	if r.Method != http.MethodPut || !below || r.Header.Get("Authorization") != "Bearer "+serviceToken {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	fails := s.fails.Load()
	if fails == "full" {
		http.Error(w, "full", http.StatusInsufficientStorage)
		return
	}
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Error(err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer file.Close()
	body := io.Reader(r.Body)
	if fails == "dies" {
		body = io.LimitReader(body, 100<<10)
	}
	if _, err := io.Copy(file, body); err != nil {
		return // a recording that was cut stays as it is
	}
	switch fails {
	case "dies":
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			conn.Close()
		}
	case "forgets":
		w.WriteHeader(http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// startRecordingService serves until the test ends. The options lead recordings to it.
func startRecordingService(t testing.TB) (s *recordingService, leadTo func(*Options)) {
	t.Helper()
	s = &recordingService{t: t, dir: t.TempDir()}
	s.fails.Store("")
	ca := pkitest.NewCA(t, "service")
	files := pkitest.Issue(t, filepath.Join(t.TempDir(), "tls"), ca, pki.Leaf{CommonName: "recorder", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}, ca)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan error)
	go func() {
		ended <- server.Serve(tls.NewListener(listener, pkitest.Load(t, files).ServerConfig(tls.NoClientCert)))
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(serviceToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, func(o *Options) {
		o.Recording.URL, o.Recording.CACert, o.Recording.TokenFile = "https://"+listener.Addr().String()+"/tapes", files.CA, token
	}
}

// recordedAtService is a world whose recordings go to a Service.
func recordedAtService(t *testing.T, sh *shell, change func(*Options)) (*world, *recordingService) {
	t.Helper()
	s, leadTo := startRecordingService(t)
	w := sessionWorld(t, func(t *testing.T, prepare func(*Server)) *world {
		return startWith(t, prepare, leadTo, change)
	})
	w.agent("cluster1", kubeAPIServerOf(t, sh.ServeHTTP), "cluster1")
	return w, s
}

// TestRecordingAtService has a Service get what users see, byte for byte, and Services that fail: a
// session is refused or ended then, or it goes on, and this is said.
func TestRecordingAtService(t *testing.T) {
	out := make([]byte, 512<<10)
	_, _ = rand.Read(out)
	const lookAfter = "ask the administrators of the hub to look after the Service of recordings"
	for name, how := range executors {
		for _, closed := range []bool{true, false} {
			w, s := recordedAtService(t, &shell{out: out}, func(o *Options) { o.Recording.FailClosed = closed })
			failed := func(outcome string) float64 {
				return testutil.ToFloat64(w.server.metrics.RecordingsFailed.WithLabelValues(outcome))
			}
			stdout, _, err := w.exec(how, execPath, "typed", false)
			if err != nil || string(stdout) != "typed"+string(out) {
				t.Errorf("%s: the user has seen %d bytes, %v", name, len(stdout), err)
			}
			if header, got, end := theRecording(t, s.dir); got[recording.Output] != string(stdout) || end != "the session has ended" || header.Session.User != "jane" {
				t.Errorf("%s: the recording has %d bytes, want %d; end %q", name, len(got[0]), len(stdout), end)
			}
			s.fails.Store("full")
			stdout, _, err = w.exec(how, execPath, "", false)
			switch {
			case closed && (err == nil || len(stdout) > 0 || failed(metrics.SessionRejected) != 1):
				t.Errorf("%s: a session that must be recorded and cannot be ended with %v and %d bytes", name, err, len(stdout))
			case !closed && (err != nil || len(stdout) != len(out) || failed(metrics.SessionUnrecorded) != 1):
				t.Errorf("%s: a session that need not be recorded ended with %v and %d bytes", name, err, len(stdout))
			}
			if resp, body := w.upgrade(execPath); closed && (resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "answers 507 Insufficient Storage") || !strings.Contains(body, lookAfter) || strings.Contains(body, "127.0.0.1")) {
				t.Errorf("%s: %d %s, want 503 that says what to do", name, resp.StatusCode, body)
			}
			unrecorded := failed(metrics.SessionUnrecorded)
			s.fails.Store("dies")
			stdout, _, err = w.exec(how, execPath, "", false)
			switch {
			case closed && err == nil && len(stdout) == len(out): // all was shown when the Service died
			case closed && (err == nil || !strings.Contains(err.Error(), "ended because it cannot be recorded any more: the Service of recordings cannot be reached; "+lookAfter)):
				t.Errorf("%s: the session ended with %v and %d of %d bytes, want why it cannot be recorded", name, err, len(stdout), len(out))
			case !closed && (err != nil || len(stdout) != len(out)):
				t.Errorf("%s: the session ended with %v and %d bytes, want it to go on", name, err, len(stdout))
			}
			// Without waiting for recordings a session may be over before its recording has failed.
			eventually(t, func() bool {
				return closed && failed(metrics.SessionCut)+failed(metrics.SessionOver) == 1 || failed(metrics.SessionUnrecorded)+failed(metrics.SessionOver) == unrecorded+1
			})
			before := failed(metrics.SessionOver)
			s.fails.Store("forgets")
			if stdout, _, err = w.exec(how, execPath, "", false); err != nil || len(stdout) != len(out) {
				t.Errorf("%s: the session ended with %v and %d bytes", name, err, len(stdout))
			}
			eventually(t, func() bool { return failed(metrics.SessionOver) == before+1 })
		}
	}
}

// atService has recordings go to a Service.
func atService(o session.RecordingOptions) session.RecordingOptions {
	o.URL, o.CACert, o.TokenFile = "https://recorder.test:8443/tapes", "/ca", "/token"
	return o
}

// TestRecordingOptions has flags that are wrong.
func TestRecordingOptions(t *testing.T) {
	for name, change := range map[string]func(*session.RecordingOptions){
		"no folder":         func(o *session.RecordingOptions) { o.FailClosed = true },
		"a relative folder": func(o *session.RecordingOptions) { o.Dir = "x" },
		"no cluster":        func(o *session.RecordingOptions) { o.Dir, o.Clusters = "/x", []string{"../x"} },
		"no set":            func(o *session.RecordingOptions) { o.Dir, o.ClusterSets = "/x", []string{""} },
		"small files":       func(o *session.RecordingOptions) { o.Dir = "/x"; o.MaxFileSize.Set("1Ki") },
		"small folder":      func(o *session.RecordingOptions) { o.Dir = "/x"; o.MaxTotalSize.Set("64Ki") },
		"two places":        func(o *session.RecordingOptions) { *o = atService(*o); o.Dir = "/x" },
		"plain HTTP":        func(o *session.RecordingOptions) { *o = atService(*o); o.URL = "http://recorder.test" },
		"a query":           func(o *session.RecordingOptions) { *o = atService(*o); o.URL += "?a=b" },
		"a password":        func(o *session.RecordingOptions) { *o = atService(*o); o.URL = "https://a:b@recorder.test" },
		"no CA":             func(o *session.RecordingOptions) { *o = atService(*o); o.CACert = "" },
		"no credential":     func(o *session.RecordingOptions) { *o = atService(*o); o.TokenFile = "" },
		"two credentials":   func(o *session.RecordingOptions) { *o = atService(*o); o.Cert, o.Key = "/c", "/k" },
		"no key":            func(o *session.RecordingOptions) { *o = atService(*o); o.Cert = "/c" },
		"no time":           func(o *session.RecordingOptions) { o.Dir, o.MaxAge = "/x", 0 },
	} {
		o := NewOptions()
		o.Recording = atService(o.Recording)
		if err := o.Validate(); err != nil && strings.Contains(err.Error(), "recording-") {
			t.Fatalf("error %v about what is right", err)
		}
		o = NewOptions()
		change(&o.Recording)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "recording-") {
			t.Errorf("%s: error %v, want one about recording", name, err)
		}
	}
}
