package kubectlplugin

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/pkg/recording"
)

const castHead = `{"version":2,"width":80,"height":24,"timestamp":1764000000,"session":{"name":"5cfa3024809daec2f0eff1920966c5ef","user":"jane\u001b[2J","kind":"exec","cluster":"cluster1","target":"ns/pod\n/main"}}` + "\n"

// castFile writes a recording.
func castFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.cast")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestReplay has the streams of a recording, and what is said beside them.
func TestReplay(t *testing.T) {
	const events = `[0.1,"o","a\u001b[31m"]` + "\n" + `[0.2,"b","stderr"]` + "\n" + `[0.2,"o","b"]` + "\n" + `[0.3,"b","stdout gP8="]` + "\n" + `[0.3,"o","??"]` + "\n" + `[0.4,"i","password"]` + "\n" + `[0.5,"r","10x10"]` + "\n"
	const said = "exec of jane\\u001b[2J to ns/pod\\u000a/main of cluster cluster1, session 5cfa3024809daec2f0eff1920966c5ef at 2025-11-24T16:00:00Z\n"
	for name, tc := range map[string]struct {
		args              []string
		content           string
		wantOut, wantErrs string
		want              error
	}{
		"whole":        {content: castHead + events + `[0.6,"e","why\u001b"]` + "\n", args: []string{"--speed=1000"}, wantOut: "a\x1b[31m\x80\xff", wantErrs: said + "b\nThe end after 600ms: why\\u001b\n"},
		"raw":          {content: castHead + events + `[0.6,"e","why"]` + "\n", args: []string{"--raw"}, wantOut: "a\x1b[31m\x80\xff", wantErrs: "b"},
		"cut":          {content: castHead + events + `[0.6,"o`, args: []string{"--raw"}, wantOut: "a\x1b[31m\x80\xff", wantErrs: "bThe recording is not complete. Missing: its end, because the session is open, or the process that recorded it was killed\n", want: cli.ErrNotGood},
		"lost":         {content: castHead + `[0.1,"l","stdout 5"]` + "\n" + `[0.2,"e","x"]` + "\n", args: []string{"--raw"}, wantErrs: "The recording is not complete. Missing: bytes of stdout 5\n", want: cli.ErrNotGood},
		"of asciinema": {content: `{"version":2,"width":80,"height":24}` + "\n" + `[0.1,"o","hi"]` + "\n", wantOut: "hi", wantErrs: "A recording of another program.\n"},
	} {
		out, errs, err := run(t, "", append([]string{"replay", castFile(t, tc.content)}, tc.args...)...)
		if out != tc.wantOut || errs != tc.wantErrs || !errors.Is(err, tc.want) {
			t.Errorf("%s: %q and\n%q, %v; want %q and\n%q, %v", name, out, errs, err, tc.wantOut, tc.wantErrs, tc.want)
		}
	}
	for _, args := range [][]string{{"--speed=0"}, {"--speed=-1"}, {"--speed=NaN"}, {"--idle-limit=-1s"}, {}} {
		if out, _, err := run(t, "", append([]string{"replay", castFile(t, "x\n")}, args...)...); err == nil || out != "" {
			t.Errorf("%q: %q, no error", args, out)
		}
	}
	if _, _, err := run(t, "", "replay", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there: no error")
	}
}

// TestReplayTakesTime has pauses, faster ones and shorter ones.
func TestReplayTakesTime(t *testing.T) {
	const content = castHead + `[1,"o","a"]` + "\n" + `[61,"o","b"]` + "\n" + `[60,"o","c"]` + "\n" + `[62,"e","x"]` + "\n"
	for _, tc := range []struct {
		speed float64
		idle  time.Duration
		want  time.Duration
	}{{1, 0, 62 * time.Second}, {2, 0, 31 * time.Second}, {1, 5 * time.Second, 7 * time.Second}, {0.5, 5 * time.Second, 14 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			var out, says bytes.Buffer
			r := replay{speed: tc.speed, idle: tc.idle, out: &out, errs: &out, says: &says, pause: pause}
			began := time.Now()
			if err := r.play(t.Context(), strings.NewReader(content)); err != nil || out.String() != "abc" {
				t.Errorf("%q, %v", &out, err)
			}
			if took := time.Since(began); took != tc.want {
				t.Errorf("speed %v, limit %v: it took %v, want %v", tc.speed, tc.idle, took, tc.want)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if err := r.play(ctx, strings.NewReader(content)); !errors.Is(err, context.DeadlineExceeded) && tc.idle == 0 {
				t.Errorf("an end from outside: %v", err)
			}
		})
	}
}

// TestReplayOfRecording has what was recorded come back.
func TestReplayOfRecording(t *testing.T) {
	dir, random := t.TempDir(), make([]byte, 100<<10)
	_, _ = rand.Read(random)
	counter := func() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{}) }
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{})
	store := recording.NewStore(recording.Options{Dir: dir, MaxFile: 1 << 30, MaxTotal: 1 << 30, MaxAge: time.Hour, FailClosed: true},
		recording.Metrics{Open: gauge, Stored: gauge, Written: counter(), Lost: counter(), Removed: prometheus.NewCounterVec(prometheus.CounterOpts{}, []string{"reason"})})
	r, err := store.Open(t.Context(), recording.Session{Name: strings.Repeat("0", 32), Kind: "exec"}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	r.Add(recording.Output, random[:70001])
	r.Add(recording.ErrorOutput, random)
	r.Add(recording.Output, random[70001:])
	r.Close("x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.Run(ctx); err != nil { // it is written then
		t.Fatal(err)
	}
	out, errs, err := run(t, "", "replay", "--raw", filepath.Join(dir, r.Path()))
	if out != string(random) || errs != string(random) || err != nil {
		t.Errorf("%d and %d bytes, %v; want %d that are the same", len(out), len(errs), err, len(random))
	}
}
