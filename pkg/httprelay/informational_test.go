package httprelay

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"testing"
)

// TestNoInformational has a ReverseProxy before a server that sends informational
// answers. The client sees none of them, and 502 if there are too many.
func TestNoInformational(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for hints, want := range map[int]int{0: http.StatusOK, maxInformational: http.StatusOK, maxInformational + 1: http.StatusBadGateway} {
			backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != protocol {
					t.Errorf("asked by %s, want %s", r.Proto, protocol)
				}
				for range hints {
					w.Header().Set("Link", "</x>")
					w.WriteHeader(http.StatusEarlyHints)
				}
			}))
			backend.EnableHTTP2 = protocol == "HTTP/2.0"
			backend.StartTLS()
			defer backend.Close()
			target, err := url.Parse(backend.URL)
			if err != nil {
				t.Fatal(err)
			}
			front := httptest.NewServer(&httputil.ReverseProxy{
				Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
				Transport:    NoInformational(backend.Client().Transport),
				ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
			})
			defer front.Close()
			seen := 0
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(int, textproto.MIMEHeader) error { seen++; return nil },
			})
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != want || seen > 0 {
				t.Errorf("%s, %d informational answers: %d after %d of them, want %d after none", protocol, hints, response.StatusCode, seen, want)
			}
		}
	}
}
