package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBench(t *testing.T) {
	for name, test := range map[string]struct {
		hub     probedHub
		args    []string
		notGood bool
		err     string
	}{
		"good":              {args: []string{"--duration=50ms", "--concurrency=2"}},
		"cluster fails":     {hub: probedHub{"/version", statusOf(503, metav1.StatusReasonServiceUnavailable, "", "no tunnel")}, args: []string{"--duration=50ms"}, notGood: true},
		"too long":          {args: []string{"--duration=1h"}, err: "at most 2m0s"},
		"no time":           {args: []string{"--duration=0s"}, err: "more than 0"},
		"too many at once":  {args: []string{"--concurrency=1000"}, err: "it must be 1 to 64"},
		"a path of no kind": {args: []string{"--path=version"}, err: "begin with a slash"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := run(t, test.hub.start(t), append([]string{"bench", "c1", "-o", "json"}, test.args...)...)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if errors.Is(err, errNotGood) != test.notGood || err != nil && !test.notGood {
				t.Errorf("error %v, want errNotGood: %v", err, test.notGood)
			}
			if !strings.HasPrefix(errOut, "GET /version for 50ms each from the hub and from c1, ") {
				t.Errorf("before it begins it says %q", errOut)
			}
			var list struct{ Items []measured }
			if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) != 2 {
				t.Fatalf("%v of %s", err, out)
			}
			found := list.Items
			for _, m := range found {
				bad := test.notGood && m.Where == "c1"
				switch {
				case bad && (m.Failed == 0 || !strings.Contains(m.Failure, "no tunnel")):
					t.Errorf("%+v, want failures that say no tunnel", m)
				case !bad && (m.Failed > 0 || m.Requests == 0 || m.P50 <= 0 || m.FirstByte50 <= 0 || m.P50 > m.P90 || m.P90 > m.P99 || m.PerSec <= 0):
					t.Errorf("%+v, want requests that have their times", m)
				}
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(i+1)*time.Millisecond)
	}
	for percent, want := range map[int]float64{50: 100, 90: 180, 99: 198} {
		if got := quantile(times, percent); got != want {
			t.Errorf("p%d is %g, want %g", percent, got, want)
		}
	}
	if got := quantile(times[:1], 99); got != 1 {
		t.Errorf("p99 of one is %g, want 1", got)
	}
}
