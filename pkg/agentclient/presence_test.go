package agentclient

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// TestAway has agents and proxy servers come and go, and wants those expected back that were
// there just now, for as long as a restart takes.
func TestAway(t *testing.T) {
	const there, noAgent, noServer = tunnel.Code(""), tunnel.NoAgent, tunnel.NoProxyServer
	type step struct {
		after    time.Duration // since the step before
		code     tunnel.Code   // of the dial
		keep     bool          // the connection stays open until the next one ends
		wantAway bool
	}
	for name, steps := range map[string][]step{
		"never seen":                     {{code: noAgent, wantAway: true}},
		"a restart":                      {{code: there}, {after: 2 * time.Second, code: noAgent}, {after: 10 * time.Second, code: noAgent}, {after: time.Second, code: there}},
		"gone for good":                  {{code: there}, {after: time.Second, code: noAgent}, {after: AwayAfter - time.Second, code: noAgent, wantAway: true}, {after: time.Hour, code: noAgent, wantAway: true}},
		"gone long before the next dial": {{code: there}, {after: AwayAfter, code: noAgent, wantAway: true}},
		"back, and gone again":           {{code: noAgent, wantAway: true}, {after: time.Hour, code: there}, {after: time.Second, code: noAgent}},
		"drains":                         {{code: there, keep: true}, {after: time.Hour, code: noAgent}, {after: AwayAfter, code: noAgent, wantAway: true}},
		"its servers restart":            {{code: there}, {after: time.Minute, code: noServer}, {after: 10 * time.Second, code: noServer}, {after: AwayAfter - time.Second, code: noAgent}, {after: time.Second, code: noAgent, wantAway: true}},
		"away when its servers restart":  {{code: noAgent, wantAway: true}, {after: time.Minute, code: noServer}, {after: time.Second, code: noAgent, wantAway: true}},
		"refuses":                        {{code: tunnel.Denied}, {after: time.Second, code: noAgent}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var code tunnel.Code
				client := New(Options{Admission: everyAgent{}, Metrics: newMetrics(), Dial: func(context.Context, string, string) (net.Conn, error) {
					if code != "" {
						return nil, &tunnel.Error{Code: code, Cluster: "cluster1"}
					}
					near, far := net.Pipe()
					t.Cleanup(func() { _ = far.Close() })
					return near, nil
				}})
				for i, s := range steps {
					time.Sleep(s.after)
					code = s.code
					conn, err := client.DialAPIServer(t.Context(), "cluster1")
					if tunnel.CodeOf(err) != s.code || IsAway(err, time.Time{}) != s.wantAway {
						t.Errorf("dial %d: %v, away: %v, want code %q, away: %v", i, err, IsAway(err, time.Time{}), s.code, s.wantAway)
					}
					if conn != nil && s.keep {
						defer conn.Close()
					} else if conn != nil {
						conn.Close()
					}
				}
			})
		})
	}
}

// TestAwayByTheHub has the hub know since when a cluster is away.
func TestAwayByTheHub(t *testing.T) {
	gone := &tunnel.Error{Code: tunnel.NoAgent, Cluster: "cluster1"}
	for name, test := range map[string]struct {
		err   error
		since time.Time
		want  bool
	}{
		"not known":        {gone, time.Time{}, false},
		"a moment ago":     {gone, time.Now().Add(-time.Second), false},
		"an hour ago":      {gone, time.Now().Add(-time.Hour), true},
		"its agent drains": {&tunnel.Error{Code: tunnel.Draining}, time.Now().Add(-time.Hour), false},
	} {
		if got := IsAway(test.err, test.since); got != test.want {
			t.Errorf("%s: away: %v, want %v", name, got, test.want)
		}
	}
}
