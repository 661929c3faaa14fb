package health

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	s.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

func TestProbes(t *testing.T) {
	var broken atomic.Bool
	s := New(Options{})
	s.AddReadyCheck("certificates", func() error {
		if broken.Load() {
			return errors.New("expired")
		}
		return nil
	})
	for _, path := range []string{"/livez", "/healthz", "/readyz", "/ready"} {
		if code, body := get(t, s, path); code != 200 || body != "ok" {
			t.Errorf("%s: %d %q, want 200 ok", path, code, body)
		}
	}
	if _, body := get(t, s, "/readyz?verbose"); !strings.Contains(body, "[+]certificates ok") {
		t.Errorf("verbose does not list the checks: %q", body)
	}

	broken.Store(true)
	for _, path := range []string{"/readyz", "/ready"} {
		code, body := get(t, s, path)
		if code != 500 || !strings.Contains(body, "[-]certificates failed: expired") || !strings.Contains(body, "[+]draining ok") {
			t.Errorf("%s: %d %q, want 500 naming the check", path, code, body)
		}
	}
	if code, _ := get(t, s, "/healthz"); code != 200 {
		t.Errorf("a failing ready check made /healthz %d", code)
	}

	broken.Store(false)
	s.Drain()
	if code, body := get(t, s, "/readyz"); code != 500 || !strings.Contains(body, "[-]draining failed") {
		t.Errorf("draining: %d %q, want 500 for draining", code, body)
	}
	if code, _ := get(t, s, "/livez"); code != 200 {
		t.Errorf("draining made /livez %d, want 200", code)
	}
}

func TestAdminHasProfilesWhereTheyAreAskedFor(t *testing.T) {
	for _, profiling := range []bool{false, true} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Admin{Metrics: New(Options{}).Handler(), Profiling: profiling}.Serve(ctx, listener) }()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for path, want := range map[string]bool{"/metrics": true, "/readyz": false, "/debug/pprof/": profiling, "/debug/pprof/heap": profiling} {
			response, err := client.Get("http://" + listener.Addr().String() + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if got := response.StatusCode == http.StatusOK; got != want {
				t.Errorf("%s with profiling %v: %s, want one that is served: %v", path, profiling, response.Status, want)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve after cancel: %v", err)
		}
	}
}

func TestRunServesMetricsUntilCancelled(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "health_test_total"}))
	s := New(Options{Address: "127.0.0.1:0", Gatherer: registry})
	if s.Addr() != nil {
		t.Error("an address before Run")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Started()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + s.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if !strings.Contains(string(body), "health_test_total 0") {
		t.Errorf("metrics: %q, want health_test_total 0", body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run after cancel: %v", err)
	}
}

func TestRunNamesTheAddressItCannotTake(t *testing.T) {
	s := New(Options{Address: "256.0.0.1:1"})
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "256.0.0.1:1") {
		t.Errorf("Run = %v, want an error that names 256.0.0.1:1", err)
	}
}
