package proxyapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// hang is far more than any request of these tests takes that is not held up.
const hang = 20 * time.Second

// do sends a request of a user, whose token is his name, and reads the answer.
func (w *world) do(client *http.Client, user, method, path string, body io.Reader) (int, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), hang)
	defer cancel()
	return w.send(ctx, client, user, method, path, body)
}

func (w *world) send(ctx context.Context, client *http.Client, user, method, path string, body io.Reader) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+user)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// stays waits until count has not changed for a while: there is nothing more to come.
func stays(t *testing.T, count *atomic.Int64) {
	t.Helper()
	last, same := int64(-1), 0
	eventually(t, func() bool {
		now := count.Load()
		if same++; now != last {
			last, same = now, 0
		}
		return same == 3
	})
}

// zeros are a body that goes on for n bytes, and counts what was taken of it.
type zeros struct {
	n     int64
	taken *atomic.Int64
}

func (z *zeros) Read(p []byte) (int, error) {
	if z.n <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.n)
	clear(p[:n])
	z.n -= n
	z.taken.Add(n)
	return int(n), nil
}

// TestUnreadUpload has a user send what a cluster does not read. Another user, whose
// requests come on the same connections as the hub's kube-apiserver sends them,
// must not notice, in that cluster nor in another.
func TestUnreadUpload(t *testing.T) {
	w := start(t)
	w.api.User("eve", "eve")
	w.api.User("jane", "jane")
	w.api.Allow("* * clusters/proxy *")
	release := make(chan struct{})
	answer := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Remote-User") == "eve" {
			<-release
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	w.agent("cluster1", answer, "cluster1")
	w.agent("cluster2", answer, "cluster2")
	client := w.client()
	var taken atomic.Int64
	var uploads sync.WaitGroup
	for range 3 {
		uploads.Go(func() {
			_, _ = w.send(t.Context(), client, "eve", http.MethodPost, "/cluster1/api/v1/namespaces", &zeros{16 << 20, &taken})
		})
	}
	defer uploads.Wait()
	defer close(release)
	eventually(t, func() bool { return taken.Load() > 2<<20 })
	stays(t, &taken)
	for _, path := range []string{"/cluster1/api/v1/namespaces/a", "/cluster2/api/v1/namespaces/a"} {
		if code, err := w.do(client, "jane", http.MethodPatch, path, strings.NewReader("{}")); code != http.StatusOK {
			t.Errorf("PATCH %s beside an upload that is not read: %d, %v", path, code, err)
		}
		if code, err := w.do(client, "jane", http.MethodGet, path, nil); code != http.StatusOK {
			t.Errorf("GET %s: %d, %v; want 200", path, code, err)
		}
	}
}

// TestUnreadAnswers has a user not read what he watches. Another user of the
// cluster must not notice, and what is kept in memory for the first has a bound.
func TestUnreadAnswers(t *testing.T) {
	const watches, bound = 120, 100 << 20
	w := start(t)
	w.api.User("eve", "eve")
	w.api.User("jane", "jane")
	w.api.Allow("* * clusters/proxy *")
	var written atomic.Int64
	event := bytes.Repeat([]byte("x"), 64<<10)
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Remote-User") != "eve" {
			_, _ = rw.Write(event)
			return
		}
		for r.Context().Err() == nil {
			n, err := rw.Write(event)
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	}), "cluster1")
	reader := w.client()
	if code, err := w.do(reader, "jane", http.MethodPost, "/cluster1/api/v1/namespaces", nil); code != http.StatusOK {
		t.Fatalf("before: %d, %v; want 200", code, err)
	}
	// Little is kept in the client, which is part of this process.
	client := w.client()
	client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10}
	before := inUse()
	for range watches {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/cluster1/api/v1/pods?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer eve")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	stays(t, &written)
	if kept := inUse() - before; kept > bound {
		t.Errorf("%d watches that are not read keep %d MiB in memory, want at most %d", watches, kept>>20, bound>>20)
	} else {
		t.Logf("%d watches that are not read keep %d MiB in memory", watches, kept>>20)
	}
	for _, tc := range []struct{ method, path string }{{http.MethodPost, "/cluster1/api/v1/namespaces"}, {http.MethodGet, "/cluster1/api/v1/pods"}} {
		if code, err := w.do(reader, "jane", tc.method, tc.path, nil); code != http.StatusOK {
			t.Errorf("%s beside watches that are not read: %d, %v", tc.method, code, err)
		}
	}
}

// inUse is how many bytes of the heap are.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
