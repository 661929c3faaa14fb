package soak

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestJudge has failures within windows and outside of them, of clients whom the fault concerns
// and others.
func TestJudge(t *testing.T) {
	began := time.Now()
	at := func(second float64) time.Time { return began.Add(time.Duration(second * float64(time.Second))) }
	windows := []window{
		{fault: "a proxy server is killed", ways: []way{request, stream}, began: at(10), ended: at(15)},
		{fault: "an agent is frozen", cluster: "cluster1", ways: []way{request}, began: at(100), ended: at(140)},
	}
	for name, tc := range map[string]struct {
		cluster     string
		way         way
		began, fail float64
		excused     bool
	}{
		"before":                          {"cluster1", request, 5, 9, false},
		"under way when the fault came":   {"cluster1", request, 5, 11, true},
		"within":                          {"cluster1", request, 12, 13, true},
		"begun within, failed later":      {"cluster1", request, 14, 44, true},
		"begun after":                     {"cluster1", request, 15.5, 16, false},
		"a stream that breaks within":     {"cluster1", stream, 12, 12, true},
		"a stream that breaks after":      {"cluster1", stream, 16, 16, false},
		"straight":                        {"cluster1", straight, 12, 13, false},
		"another cluster's agent":         {"cluster2", request, 110, 111, false},
		"the agent's cluster":             {"cluster1", request, 110, 111, true},
		"a view of all":                   {"", request, 110, 111, true},
		"what the fault does not concern": {"cluster1", stream, 110, 110, false},
		"between":                         {"cluster1", request, 50, 51, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &client{name: "get", cluster: tc.cluster, way: tc.way}
			c.note(at(0), at(1), nil)
			c.note(at(tc.began), at(tc.fail), errors.New("connection reset"))
			v := c.judge(windows)
			if v.worked != 1 || (v.excused == 1) != tc.excused || (len(v.unexcused) == 0) != tc.excused {
				t.Errorf("%+v, want excused: %t", v, tc.excused)
			}
		})
	}
	c := &client{way: request}
	if v := c.judge(windows); len(v.unexcused) != 1 || !strings.Contains(v.unexcused[0], "ever") {
		t.Errorf("%+v, want that nothing went well", v)
	}
}

// TestGaps has watches that lack events: nothing excuses that but a restart of a kube-apiserver,
// and that a view's only.
func TestGaps(t *testing.T) {
	now := time.Now()
	killed := window{fault: "a proxy server is killed", ways: []way{request, stream}, began: now.Add(-time.Minute), ended: now.Add(time.Minute)}
	restarted := killed
	restarted.gaps = true
	for name, tc := range map[string]struct {
		cluster string
		in      window
		excused int
	}{
		"of a view, proxy server killed":         {"", killed, 0},
		"of a view, kube-apiserver restarted":    {"", restarted, 1},
		"of a cluster, kube-apiserver restarted": {"cluster1", restarted, 0},
		"of a view, before the restart":          {"", window{ways: []way{stream}, gaps: true, began: now.Add(time.Minute), ended: now.Add(time.Hour)}, 0},
	} {
		c := &client{cluster: tc.cluster, way: stream}
		c.note(now, now, nil)
		c.missed("events 526 to 527 are missing")
		if v := c.judge([]window{tc.in}); v.excused != tc.excused || len(v.unexcused) != 1-tc.excused {
			t.Errorf("%s: %+v, want %d excused", name, v, tc.excused)
		}
	}
}
