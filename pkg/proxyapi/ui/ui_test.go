package ui

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func serve(method, path string, header http.Header) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	r.Header = header
	w := httptest.NewRecorder()
	New().ServeHTTP(w, r)
	return w.Result()
}

func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		method, path string
		wantCode     int
		wantType     string
	}{
		{"GET", "/ui/", 200, "text/html; charset=utf-8"},
		{"GET", "/ui/?token=secret", 200, "text/html; charset=utf-8"},
		{"HEAD", "/ui/app.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/ui/style.css", 200, "text/css; charset=utf-8"},
		{"GET", "/ui/icon.svg", 200, "image/svg+xml"},
		{"GET", "/ui", 301, ""},
		{"GET", "/ui/index.html", 404, "text/plain; charset=utf-8"},
		{"GET", "/ui/../apis", 404, "text/plain; charset=utf-8"},
		{"POST", "/ui/", 405, "text/plain; charset=utf-8"},
		{"OPTIONS", "/ui/app.js", 405, "text/plain; charset=utf-8"},
	} {
		resp := serve(test.method, test.path, http.Header{})
		if resp.StatusCode != test.wantCode || resp.Header.Get("Content-Type") != test.wantType {
			t.Errorf("%s %s: %d %q, want %d %q", test.method, test.path, resp.StatusCode, resp.Header.Get("Content-Type"), test.wantCode, test.wantType)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Set-Cookie": "", "Access-Control-Allow-Origin": "",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", test.method, test.path, name, got, want)
			}
		}
	}
	if got := serve("GET", "/ui", http.Header{}).Header.Get("Location"); got != "ui/" {
		t.Errorf("Location %q, want ui/, which keeps a prefix", got)
	}
}

func TestETag(t *testing.T) {
	etag := serve("GET", "/ui/app.js", http.Header{}).Header.Get("ETag")
	for value, want := range map[string]int{etag: 304, "W/" + etag: 304, `"a", ` + etag: 304, "*": 304, `"a"`: 200, "": 200} {
		if resp := serve("GET", "/ui/app.js", http.Header{"If-None-Match": {value}}); resp.StatusCode != want {
			t.Errorf("If-None-Match %q: %d, want %d", value, resp.StatusCode, want)
		}
	}
}

// TestFilesObeyThePolicy finds what a browser would refuse, or what should not be there.
func TestFilesObeyThePolicy(t *testing.T) {
	never := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|localStorage|sessionStorage|indexedDB|document\.cookie|<style|\sstyle=|\son[a-z]+="|https?://[^w]`)
	for path, f := range New().files {
		if found := never.FindString(string(f.content)); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		if f.contentType == "" {
			t.Errorf("%s has no content type", path)
		}
	}
	page := string(New().files[Path].content)
	for _, reference := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if _, ok := New().files[Path+reference[1]]; !ok || strings.HasPrefix(reference[1], "/") {
			t.Errorf("the page refers to %q, which is no file beside it", reference[1])
		}
	}
}
