package proxyapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// pausedClient reads nothing until its write deadline, or until it goes on.
type pausedClient struct {
	http.ResponseWriter
	deadline, on chan struct{}
}

func (c *pausedClient) Write(p []byte) (int, error) {
	select {
	case <-c.deadline:
		return 0, os.ErrDeadlineExceeded
	case <-c.on:
		return len(p), nil
	}
}

func (c *pausedClient) SetWriteDeadline(time.Time) error { close(c.deadline); return nil }

// TestUnreadAnswersOfAUser has a user not read so many answers that they would take
// more memory than a user may have. Clients that pause within it are waited for.
func TestUnreadAnswersOfAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, answers := metrics.New(prometheus.NewRegistry()), scope.NewLimiter(scope.UnreadBytes, 2*httprelay.Window, 100*httprelay.Window)
		on := make(chan struct{})
		results := make(chan error, 10)
		pause := func(user, verb string) {
			c := &scope.Scope{Holder: user, Target: route.Target{Cluster: "cluster1"}, Inner: &request.RequestInfo{Verb: verb}}
			go func() {
				w := relay.NewPacedWriter(&pausedClient{httptest.NewRecorder(), make(chan struct{}), on}, c, answers, m)
				_, err := w.Write([]byte("x"))
				results <- err
			}()
			time.Sleep(2 * relay.StalledAfter)
		}
		pause("eve", "get")
		for range httprelay.Window / agentclient.WatchWindow {
			pause("eve", "watch")
		}
		pause("jane", "get")
		time.Sleep(time.Hour)
		if len(results) != 0 {
			t.Fatal("a client that pauses is not waited for")
		}
		pause("eve", "get")
		if err := <-results; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the answer that is too much ends with %v", err)
		}
		close(on)
		for range 2 + httprelay.Window/agentclient.WatchWindow {
			if err := <-results; err != nil {
				t.Errorf("an answer is cut off that was read in the end: %v", err)
			}
		}
		synctest.Wait()
		if len(answers.InFlight) != 0 {
			t.Errorf("left of it is %v, want nothing", answers.InFlight)
		}
	})
}

// TestUploadsOfAUser sees what counts of requests; TestUnreadUploadsAreRefused has the limits.
func TestUploadsOfAUser(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		length  int64
		upgrade string
		want    int
	}{
		"no body":  {},
		"small":    {body: "abc", length: 3, want: 3},
		"large":    {body: "abc", length: 5 << 30, want: httprelay.Window},
		"unknown":  {body: "abc", length: -1, want: httprelay.Window},
		"upgrades": {body: "abc", length: -1, upgrade: "websocket"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tc.body))
		if r.ContentLength = tc.length; tc.body == "" {
			r.Body = http.NoBody
		}
		if tc.upgrade != "" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", tc.upgrade)
		}
		if got := filter.UploadOf(r); got != tc.want {
			t.Errorf("%s: counts as %d bytes, want %d", name, got, tc.want)
		}
	}
}
