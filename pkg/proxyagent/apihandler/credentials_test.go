package apihandler

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestRefusedTokensEndNobodysRequests has a kube-apiserver that ends the connection of
// every HTTP/2 request whose token it refuses, as real ones do
// (UnauthenticatedHTTP2DOSMitigation).
func TestRefusedTokensEndNobodysRequests(t *testing.T) {
	const good, body = "Bearer good", "a whole object"
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != good {
			if r.ProtoMajor == 2 {
				w.Header().Set("Connection", "close")
			}
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	client := f.proxyAPI(t)
	ask := func(token string) (int, string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/api", io.MultiReader(strings.NewReader(body)))
		if err != nil {
			return 0, "", err
		}
		r.Header.Set("Authorization", token)
		resp, err := client.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(got), err
	}
	var clients sync.WaitGroup
	const each = 200
	for i := range 4 {
		clients.Go(func() {
			for j := range each {
				if code, _, err := ask(fmt.Sprintf("Bearer bad-%d-%d", i, j)); err != nil || code != http.StatusUnauthorized {
					t.Errorf("a bad token is answered %d, %v, want 401", code, err)
				}
			}
		})
		clients.Go(func() {
			for range each {
				if code, got, err := ask(good); err != nil || code != http.StatusOK || got != body {
					t.Errorf("a good token beside bad ones is answered %d, %v: %.200s", code, err, got)
				}
			}
		})
	}
	clients.Wait()
}
