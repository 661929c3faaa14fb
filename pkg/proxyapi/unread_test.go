package proxyapi

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// startUnread is start where a user may have two windows unread, and a cluster three.
func startUnread(t *testing.T, agent http.HandlerFunc) *world {
	t.Helper()
	w := startWith(t, func(s *Server) {
		s.uploads, s.answers = scope.NewLimiter(scope.UnreadBytes, 2*httprelay.Window, 3*httprelay.Window), scope.NewLimiter(scope.UnreadBytes, 2*httprelay.Window, 3*httprelay.Window)
	})
	for _, name := range []string{"eve", "bob", "joe"} {
		w.api.User(name, name)
	}
	w.api.Allow("* * clusters/proxy *")
	for _, cluster := range []string{"cluster1", "cluster2"} {
		w.agent(cluster, agent, cluster)
	}
	return w
}

// held is how much is counted under a key.
func held(l *scope.Limiter, key string) int {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.InFlight[key]
}

// TestUnreadUploadsAreRefused has users send bodies that clusters do not read, to the limits of one
// user and of one cluster.
func TestUnreadUploadsAreRefused(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	w := startUnread(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	client := w.client()
	upload := func(user, cluster string) (int, error) {
		return w.do(client, user, http.MethodPost, "/"+cluster+"/api/v1/namespaces", struct{ io.Reader }{strings.NewReader("of unknown length")})
	}
	var open sync.WaitGroup
	for _, of := range [][2]string{{"eve", "cluster1"}, {"eve", "cluster1"}, {"bob", "cluster1"}, {"joe", "cluster2"}} {
		open.Go(func() {
			if code, err := upload(of[0], of[1]); code != http.StatusOK {
				t.Errorf("an upload of %s to %s: %d, %v; want 200", of[0], of[1], code, err)
			}
		})
		<-arrived
	}
	refused := func(what, user, cluster string) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if code, err := upload(user, cluster); code != http.StatusTooManyRequests {
				t.Errorf("%s: %d, %v; want 429", what, code, err)
			}
		}()
		select {
		case <-arrived:
			t.Errorf("%s arrives", what)
			open.Go(func() { <-done })
		case <-done:
		}
	}
	refused("the third upload of a user", "eve", "cluster2")
	refused("the fourth upload to a cluster", "joe", "cluster1")
	if code, err := w.do(client, "eve", http.MethodPost, "/away/api/v1/namespaces", nil); code == http.StatusTooManyRequests {
		t.Errorf("a request without a body, of the user at the limit: %d, %v", code, err)
	}
	close(release)
	open.Wait()
	eventually(t, func() bool { return held(w.server.uploads, "all") == 0 })
}

// TestUnreadAnswersAreCutOff has users not read answers, to the limits of one user and of one
// cluster. Answers above the limits are cut off; all else is waited for.
func TestUnreadAnswersAreCutOff(t *testing.T) {
	var cut atomic.Int32
	ends := make(chan struct{})
	w := startUnread(t, func(rw http.ResponseWriter, _ *http.Request) {
		part := bytes.Repeat([]byte("x"), 64<<10)
		for {
			if _, err := rw.Write(part); err != nil {
				break
			}
		}
		select {
		case <-ends:
		default:
			cut.Add(1)
		}
	})
	client := w.client()
	client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10}
	for user, of := range map[string]struct {
		cluster string
		n       int
	}{"eve": {"cluster1", 3}, "bob": {"cluster2", 2}, "joe": {"cluster2", 2}} {
		for range of.n {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/"+of.cluster+"/api/v1/pods", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+user)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
		}
	}
	defer close(ends)
	answers := w.server.answers
	eventually(t, func() bool {
		return cut.Load() == 2 && held(answers, "user\x00eve") == 2*httprelay.Window && held(answers, scope.OfCluster("cluster2")) == 3*httprelay.Window
	})
}
