package recording

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMetrics() Metrics {
	return Metrics{Open: prometheus.NewGauge(prometheus.GaugeOpts{}), Stored: prometheus.NewGauge(prometheus.GaugeOpts{}),
		Written: prometheus.NewCounter(prometheus.CounterOpts{}), Lost: prometheus.NewCounter(prometheus.CounterOpts{}),
		Removed: prometheus.NewCounterVec(prometheus.CounterOpts{}, []string{"reason"})}
}

func newStore(t testing.TB, change func(*Options)) *Store {
	t.Helper()
	o := Options{Dir: t.TempDir(), MaxFile: 1 << 30, MaxTotal: 1 << 30, MaxAge: time.Hour, FailClosed: true}
	change(&o)
	return NewStore(o, newMetrics())
}

func asIs(*Options) {}

func (s *Store) folder() *folder { return s.place.(*folder) }

func randomName() string {
	var name [16]byte
	_, _ = rand.Read(name[:])
	return hex.EncodeToString(name[:])
}

// begin begins a recording. Its failures go into the channel.
func begin(t testing.TB, s *Store) (*Recording, chan error) {
	t.Helper()
	failed := make(chan error, 2)
	r, err := s.Open(t.Context(), Session{Name: randomName(), User: "jane", Kind: "exec", Cluster: "cluster1", Target: "ns/pod/main"}, func(err error) { failed <- err })
	if err != nil {
		t.Fatal(err)
	}
	return r, failed
}

// await waits until a recording's file is closed.
func (s *Store) await(r *Recording) {
	for {
		s.mu.Lock()
		_, open := s.open[r]
		if !open {
			s.mu.Unlock()
			return
		}
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle
		s.mu.Unlock()
		<-idle
	}
}

// play reads a recording. Lost and end are those of the file.
func play(t testing.TB, path string) (streams map[Stream]string, lost []string, end string, err error) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, err := NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[Stream][]byte{}
	for {
		event, err := reader.Next()
		if err != nil {
			streams = map[Stream]string{}
			for s, p := range all {
				streams[s] = string(p)
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return streams, lost, end, err
		}
		all[event.Stream] = append(all[event.Stream], event.Data...)
		if event.Lost != "" {
			lost = append(lost, event.Lost)
		}
		if event.End != "" {
			end = event.End
		}
	}
}

func below(n int64) int {
	v, _ := rand.Int(rand.Reader, big.NewInt(n))
	return int(v.Int64())
}

// TestBytes has each byte of a session come back, in the order of its stream, and valid
// asciicast in the file.
func TestBytes(t *testing.T) {
	s := newStore(t, asIs)
	random := make([]byte, 300<<10)
	_, _ = rand.Read(random)
	text := strings.Repeat("Grüße, 世界 🌍 \x1b[31m\"\\\r\n\t\x00\x7f\u009b\ufffd", 3000)
	for name, input := range map[string]string{"random": string(random), "text": text, "both": text[:1000] + string(random[:1000]) + text[:999], "an unfinished end": "ok \xe4\xb8", "zero": "\x00", "none": ""} {
		r, failed := begin(t, s)
		want := map[Stream]string{}
		for rest := input; len(rest) > 0; {
			n := min(len(rest), 1+below(5000))
			stream := Stream(below(3))
			r.Room()
			r.Add(stream, []byte(rest[:n]))
			want[stream] += rest[:n]
			rest = rest[n:]
		}
		r.AddSize([]byte(`{"Width":120,`))
		r.AddSize([]byte(`"Height":40}` + "\n" + `{"Width":1e9,"Height":1}{"Width":0}` + strings.Repeat("x", 9999) + `}{"Width":5,"Height":6}`))
		r.Close("because")
		s.await(r)
		got, lost, end, err := play(t, filepath.Join(s.options.Dir, r.Path()))
		if err != nil || len(lost) > 0 || end != "because" || len(failed) > 0 {
			t.Errorf("%s: %v, lost %q, end %q, want none, none, because", name, err, lost, end)
		}
		if want[resize] = "120x405x6"; len(got) > streams {
			t.Errorf("%s: %d streams", name, len(got))
		}
		for s := range Stream(streams) {
			if got[s] != want[s] {
				t.Errorf("%s: stream %d has %d bytes, want %d", name, s, len(got[s]), len(want[s]))
			}
		}
		checkLines(t, filepath.Join(s.options.Dir, r.Path()))
	}
}

// checkLines checks that other programs can read the file: UTF-8, JSON, no control characters.
func checkLines(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(raw) || bytes.ContainsFunc(raw, func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 }) {
		t.Error("the file has what is no UTF-8, or controls a terminal")
	}
	last := 0.0
	for i, line := range strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n") {
		if i == 0 {
			continue
		}
		var event [3]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("line %d: %v", i, err)
		}
		at, isTime := event[0].(float64)
		if code, ok := event[1].(string); !isTime || at < last || !ok || len(code) != 1 {
			t.Fatalf("line %d is %.80s, want a time that is not before, and a code", i, line)
		}
		last = at
	}
}

// TestTextIsText has characters that arrive in pieces: no player sees the pieces.
func TestTextIsText(t *testing.T) {
	s := newStore(t, asIs)
	r, _ := begin(t, s)
	for _, b := range []byte("世界") {
		r.Add(Output, []byte{b})
		r.mu.Lock()
		r.pieces = append(r.pieces, piece{time.Since(r.began), Input, 0}) // the next one is not merged
		r.mu.Unlock()
	}
	r.Close("x")
	s.await(r)
	raw, err := os.ReadFile(filepath.Join(s.options.Dir, r.Path()))
	if err != nil || strings.Contains(string(raw), `"b"`) || !strings.Contains(string(raw), "世") {
		t.Errorf("the file is %v\n%s", err, raw)
	}
}

// TestFiles has paths and modes. A name that is none of a session has no file.
func TestFiles(t *testing.T) {
	s := newStore(t, asIs)
	r, _ := begin(t, s)
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\d/\d{6}-[0-9a-f]{32}\.cast$`).MatchString(r.Path()) {
		t.Errorf("the path is %q", r.Path())
	}
	for path, want := range map[string]os.FileMode{r.Path(): 0o600, filepath.Dir(r.Path()): 0o700 | os.ModeDir} {
		if info, err := os.Stat(filepath.Join(s.options.Dir, path)); err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	for _, name := range []string{"", "../../etc/passwd", "x/" + strings.Repeat("0", 30), strings.Repeat("0", 31) + "\n", strings.Repeat("0", 33)} {
		if r, err := s.Open(t.Context(), Session{Name: name}, func(error) {}); err == nil {
			t.Errorf("%q has the file %s", name, r.Path())
		}
	}
	r.Discard()
	s.await(r)
	if _, err := os.Stat(filepath.Join(s.options.Dir, r.Path())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that was discarded: %v", err)
	}
}

// TestFolderOfOthers has a folder in which somebody has made links.
func TestFolderOfOthers(t *testing.T) {
	s, elsewhere := newStore(t, asIs), t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(s.options.Dir, time.Now().UTC().Format(dayFormat))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), Session{Name: randomName()}, func(error) {}); err == nil {
		t.Error("a file could be made behind a link")
	}
	if found, err := os.ReadDir(elsewhere); err != nil || len(found) > 0 {
		t.Errorf("%v %v is elsewhere", found, err)
	}
}

// TestCrash has a process that is killed: what it has written can be read.
func TestCrash(t *testing.T) {
	s := newStore(t, asIs)
	r, _ := begin(t, s)
	r.Add(Output, []byte("one\n"))
	r.Close("x")
	s.await(r)
	path := filepath.Join(s.options.Dir, r.Path())
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := bytes.LastIndex(raw, []byte(`"e"`))
	for cut := bytes.IndexByte(raw, '\n') + 1; cut < whole; cut++ {
		if err := os.WriteFile(path, raw[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, _, err := play(t, path)
		if !errors.Is(err, ErrCut) || !strings.HasPrefix("one\n", got[Output]) {
			t.Fatalf("cut at %d: %q, %v; want a beginning, and %v", cut, got[Output], err, ErrCut)
		}
	}
}

// TestEvilFiles has files that are no recordings.
func TestEvilFiles(t *testing.T) {
	const head = `{"version":2,"width":80,"height":24,"session":{"name":"x"}}` + "\n"
	for name, content := range map[string]string{"empty": "", "another version": `{"version":3}`, "no JSON": "x\n", "binary": "\x00\xff\n", "no event": head + "{}\n", "two fields": head + "[1,\"o\"]\n",
		"no time": head + `["x","o","y"]` + "\n", "a time before": head + `[-1,"o","y"]` + "\n", "a long time": head + `[1e300,"o","y"]` + "\n", "no base64": head + `[1,"b","stdout !"]` + "\n",
		"a long line": head + `[1,"o","` + strings.Repeat("x", maxLine) + `"]` + "\n", "cut": head + `[1,"o"`} {
		reader, err := NewReader(strings.NewReader(content))
		for err == nil {
			_, err = reader.Next()
		}
		if errors.Is(err, io.EOF) {
			t.Errorf("%s: it was read, want an error", name)
		}
	}
	reader, err := NewReader(strings.NewReader(`{"version":2,"width":80,"height":24,"env":{}}` + "\n" + `[1,"o","x"]` + "\n" + `[2,"m","marker"]` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if event, err := reader.Next(); err != nil || string(event.Data) != "x" {
		t.Errorf("a file of asciinema: %v %v", event, err)
	}
	if _, err := reader.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("its end is %v, want EOF", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"version":2}` + "\n" + `[1.5,"b","stderr AA=="]` + "\n" + `[1.5,"o","x"]` + "\n" + `[2,"e","x"]`))
	f.Fuzz(func(t *testing.T, content []byte) {
		reader, err := NewReader(bytes.NewReader(content))
		for n := 0; err == nil; n++ {
			if _, err = reader.Next(); n > len(content) {
				t.Fatal("there are more events than bytes")
			}
		}
	})
}

// put makes a file of some age.
func (s *Store) put(t *testing.T, day, name string, size int, age time.Duration) string {
	t.Helper()
	path := filepath.Join(s.options.Dir, day, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRemoval has files that are too old, and too many. Open files stay, and files that are
// not ours.
func TestRemoval(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MaxTotal, o.MaxFile = 100<<10, 100<<10 })
	id := strings.Repeat("0", 32)
	old := s.put(t, "2026-01-01", "000000-"+id+".cast", 10, 2*time.Hour)
	foreign := s.put(t, "2026-01-01", "notes.txt", 10, 1000*time.Hour)
	lost := s.put(t, "lost+found", "000000-"+id+".cast", 1<<20, 1000*time.Hour)
	first := s.put(t, "2026-01-02", "000001-"+id+".cast", 30<<10, 50*time.Minute)
	second := s.put(t, "2026-01-02", "000002-"+id+".cast", 30<<10, 40*time.Minute)
	elsewhere := s.put(t, "2026-01-03", "000003-"+id+".cast", 30<<10, time.Minute)
	s.folder().count()
	want := func(what string, path string, there bool) {
		t.Helper()
		if _, err := os.Stat(path); (err == nil) != there {
			t.Errorf("%s: %s is there: %t, want %t", what, filepath.Base(path), err == nil, there)
		}
	}
	want("age", old, false)
	want("age", foreign, true)
	want("age", lost, true)
	want("age", first, true)
	r, failed := begin(t, s)
	r.Add(Output, bytes.Repeat([]byte("x"), 20<<10))
	r.Close("x")
	s.await(r)
	want("size", first, false)
	want("size", second, true)
	one, _ := begin(t, s)
	one.Add(Output, bytes.Repeat([]byte("x"), 45<<10))
	one.Close("x")
	s.await(one)
	want("more", second, false)
	want("more", elsewhere, true)
	want("more", filepath.Join(s.options.Dir, r.Path()), false)
	if len(failed) > 0 {
		t.Errorf("failed with %v", <-failed)
	}
	two, failedToo := begin(t, s)
	two.Add(Output, bytes.Repeat([]byte("x"), 80<<10)) // more than there can be beside what is open elsewhere
	if err := <-failedToo; !errors.Is(err, errFull) {
		t.Errorf("failed with %v, want %v", err, errFull)
	}
	s.await(two)
	s.folder().count()
	if got := promtest.ToFloat64(s.metrics.Removed.WithLabelValues(bySize)); got < 3 {
		t.Errorf("%v files were removed by size, want 3 or more", got)
	}
	if s.folder().used > 100<<10 || promtest.ToFloat64(s.metrics.Stored) != float64(s.folder().used) || promtest.ToFloat64(s.metrics.Open) != 0 {
		t.Errorf("%d bytes are used, %v by the metric, %v open", s.folder().used, promtest.ToFloat64(s.metrics.Stored), promtest.ToFloat64(s.metrics.Open))
	}
}

// TestNobodyPushesOutOthers has a user with much output: only that user's recordings go, those that
// another process has written as well. Users who have more than a new one give way to it.
func TestNobodyPushesOutOthers(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MaxTotal, o.MaxFile = 100<<10, 100<<10 })
	other := newStore(t, func(o *Options) { o.Dir = s.options.Dir })
	record := func(s *Store, user string, size int) string {
		t.Helper()
		r, err := s.Open(t.Context(), Session{Name: randomName(), User: user, Kind: "exec", Cluster: "c"}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		r.Add(Output, bytes.Repeat([]byte("x"), size))
		r.Close("x")
		s.await(r)
		return filepath.Join(s.options.Dir, r.Path())
	}
	there := func(paths ...string) (n int) {
		for _, path := range paths {
			if _, err := os.Stat(path); err == nil {
				n++
			}
		}
		return n
	}
	old := []string{record(s, "jane", 5<<10), record(s, "", 5<<10), record(other, "joe", 5<<10)}
	for _, path := range old { // all of them are older than those of eve
		at := time.Now().Add(-50 * time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	s.folder().count()
	var eves []string
	for range 20 {
		eves = append(eves, record(s, "eve", 10<<10))
	}
	if got := there(old...); got != len(old) {
		t.Errorf("%d of %d recordings of others are there", got, len(old))
	}
	if n := there(eves...); n == 0 || n > 8 || there(eves[len(eves)-1]) == 0 {
		t.Errorf("%d recordings of eve are there, want the last ones", n)
	}
	added := record(s, "new", 20<<10)
	if got := there(append(old, added)...); got != len(old)+1 {
		t.Errorf("%d of %d recordings of others are there after that of a new user", got, len(old)+1)
	}
	if got := s.folder().used; got > 100<<10 {
		t.Errorf("%d bytes are used", got)
	}
}

// TestRun has the end of a process: what is being recorded is written first.
func TestRun(t *testing.T) {
	s := newStore(t, asIs)
	r, _ := begin(t, s)
	ran := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ran <- s.Run(ctx) }()
	r.Add(Output, []byte("x"))
	cancel()
	r.Close("x")
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if got, _, end, err := play(t, filepath.Join(s.options.Dir, r.Path())); got[Output] != "x" || end == "" || err != nil {
		t.Errorf("got %q, end %q, %v", got[Output], end, err)
	}
}
