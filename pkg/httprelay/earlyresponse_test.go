package httprelay

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy is a reverse proxy, over HTTP/2 on both sides.
func proxy(t *testing.T, to *httptest.Server) *httptest.Server {
	t.Helper()
	target, err := url.Parse(to.URL)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(HandleEarlyResponses(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target); RewriteEarlyResponses(r) },
		Transport:     to.Client().Transport,
		FlushInterval: -1,
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestAnswersBeforeTheBodyEnd(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			_, _ = io.Copy(w, r.Body)
			return
		}
		http.Error(w, "not this", http.StatusUnsupportedMediaType)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	front := proxy(t, proxy(t, server))
	client := front.Client()
	client.Timeout = 20 * time.Second
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range 100 {
				// Of unknown length, so that the end comes apart from the rest.
				text := io.MultiReader(strings.NewReader("xx"), strings.NewReader(""))
				path, want := "/", http.StatusUnsupportedMediaType
				if i%10 == 0 {
					path, want = "/echo", http.StatusOK
				}
				resp, err := client.Post(front.URL+path, "text/plain", text)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != want || want == http.StatusOK && string(got) != "xx" {
					t.Errorf("%s: %d %q, %v; want %d", path, resp.StatusCode, got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}
