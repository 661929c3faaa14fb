package replica

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

// TestEvilSessionPeers has a peer that lies, hangs, or answers without end.
func TestEvilSessionPeers(t *testing.T) {
	const name = "0123456789abcdef0123456789abcdef"
	for what, tc := range map[string]struct {
		answer  func(w http.ResponseWriter, r *http.Request)
		want    int
		missing string
	}{
		"an old one": {answer: http.NotFound, missing: "without sessions"},
		"hangs":      {missing: "deadline"},
		"fails":      {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, missing: "500"},
		"nonsense":   {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{") }, missing: "no list"},
		"a foreign name": {answer: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"sessions":[{"metadata":{"name":"../x"}}]}`)
		}, missing: "no list"},
		"too many": {answer: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"sessions":[`+strings.Repeat("{},", 1<<12)+`{}]}`)
		}, missing: "more than 2000"},
		"too long": {answer: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"sessions":[],"x":"`+strings.Repeat("x", position.MaxMessage)+`"}`)
		}, missing: "more than"},
		"more": {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"sessions":[],"more":7}`) }, missing: "7 sessions more"},
		"escapes": {answer: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"sessions":[{"metadata":{"name":"`+name+`","labels":{"a":"b"}},"status":{"user":"\u001b[2J"}}]}`)
		}, want: 1},
	} {
		t.Run(what, func(t *testing.T) {
			inNetwork(t, func(t *testing.T, n *network) {
				one := n.start(t, 1)
				two := n.start(t, 2, one)
				synctest.Wait()
				n.freeze(two.address, tc.answer == nil)
				greetings := two.Routes()
				n.set(two.address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasPrefix(r.URL.Path, SessionsPath) {
						tc.answer(w, r)
						return
					}
					greetings.ServeHTTP(w, r)
				}))
				items, _, missing := one.AskSessions(t.Context())
				if len(items) != tc.want || !strings.Contains(strings.Join(missing, ";"), tc.missing) || (tc.missing == "") != (len(missing) == 0) {
					t.Errorf("got %d sessions, missing %q; want %d, %q", len(items), missing, tc.want, tc.missing)
				}
				for _, s := range items {
					if strings.Contains(s.Status.User, "\x1b") || s.Labels != nil {
						t.Errorf("got %+v, want what is safe to print", s)
					}
				}
			})
		})
	}
}
