package hubapi

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Local is a Hub that is asked without a network, as inside of testing/synctest.
type Local struct {
	*Hub
	// Slow is how long the hub takes for an answer.
	Slow time.Duration
	// Asking is how many questions the hub has now, and Most how many it had.
	Asking, Most atomic.Int64
}

// RoundTrip has the hub answer a request.
func (l *Local) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if now := l.Asking.Add(1); now > l.Most.Load() {
		l.Most.Store(now)
	}
	defer l.Asking.Add(-1)
	time.Sleep(l.Slow)
	answer := httptest.NewRecorder()
	l.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// NewLocal returns a Local and a client of it.
func NewLocal(t testing.TB) (*Local, kubernetes.Interface) {
	t.Helper()
	local := &Local{Hub: New()}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://hub", QPS: -1, Transport: local, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return local, client
}
