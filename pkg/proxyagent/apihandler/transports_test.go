package apihandler

import (
	"net/http"
	"testing"
	"time"
)

// TestReadsHaveConnectionsOfTheirOwn also sees that those with the agent's
// credential carry nobody else's requests.
func TestReadsHaveConnectionsOfTheirOwn(t *testing.T) {
	seen := make(chan *http.Request, 1)
	f := start(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Clone(r.Context()) })
	client := f.proxyAPI(t)
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = false // as the proxy API sends reads
	ask := func(user, token string) *http.Request {
		req, err := http.NewRequest(http.MethodGet, f.url+"/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			req.Header.Set("X-Remote-User", user)
		}
		req.Header.Set("Authorization", token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		r := <-seen
		if r.Header.Get("Impersonate-User") != user || user != "" && r.Header.Get("Authorization") != "Bearer the-agents-own-token" || user == "" && r.Header.Get("Authorization") != token {
			t.Errorf("user %q with token %q came as %v", user, token, r.Header)
		}
		return r
	}
	connections := map[string]string{}
	for _, user := range []string{"jane", "", "joe"} {
		deadline := time.Now().Add(20 * time.Second)
		for {
			r := ask(user, "Bearer of-somebody")
			if r.ProtoMajor == 1 {
				connections[user] = r.RemoteAddr
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("reads of %q go by %s", user, r.Proto)
			}
		}
	}
	if connections["jane"] == connections[""] || connections["joe"] == connections[""] {
		t.Errorf("connections %v: want those of users whom the agent impersonates for nobody else", connections)
	}
}
