package fleetindexer

import (
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, agents := newTestShared(t, fleetindex.Options{})
		f, stop := follow(t, s)
		defer stop()
		stream := agents.next(t)
		if r := stream.request.Resources; stream.cluster != "a" || len(r) != 2 || r[1].Resource != pods || r[1].Definition != nil {
			t.Errorf("an empty store asked for %+v", stream.request)
		}
		// A heartbeat counts when each resource is there, and so does the message that says so of the last one.
		stream.send(&feed.Message{})
		stream.send(&feed.Message{Resource: pods, Definition: &podColumn}, &feed.Message{Resource: pods, Put: []feed.Row{pod("web-0", "1"), pod("web-1", "2")}}, &feed.Message{})
		if f.heard.Load() != 0 {
			t.Error("the cluster counts as heard before its rows are there")
		}
		stream.send(&feed.Message{Resource: pods, Version: "100", Synced: true, Incomplete: "one was too large"}, &feed.Message{Resource: nodes, Incomplete: "403: no nodes"})
		if got := f.heard.Load(); got != time.Now().UnixNano() || f.rows.Load() != 2 {
			t.Errorf("heard at %d with %d rows", got, f.rows.Load())
		}
		s.writeBeats(t.Context())
		if got, listed := list(t, s); !slices.Equal(got, []string{"a/web-0@1", "a/web-1@2"}) || !listed[0].Synced || !listed[0].Heard.Equal(time.Now()) || listed[0].Incomplete != "one was too large" {
			t.Errorf("got %v, %+v", got, listed)
		}
		stream.send(&feed.Message{Resource: pods, Gone: []feed.Key{{Namespace: "shop", Name: "web-0"}}, Put: []feed.Row{pod("web-2", "9")}, Version: "9"})
		if got := rows(t, s); !slices.Equal(got, []string{"a/web-1@2", "a/web-2@9"}) {
			t.Errorf("got %v", got)
		}
		// The next stream says what there is, and rows are gone by the hashes of their UIDs.
		stream.send(&feed.Message{Resource: pods, Again: true})
		stream = agents.next(t)
		known := stream.request.Resources[1]
		items, err := feed.Items(known.Items["shop"])
		if err != nil || len(items) != 2 || len(known.Digests) != 1 || known.Definition == nil {
			t.Errorf("asked for %+v", known)
		}
		stream.send(&feed.Message{Resource: pods, Definition: &podColumn}, &feed.Message{Resource: pods, GoneUIDs: []uint64{feed.ItemOf("uid-web-1", "").UID, 12}})
		if got := rows(t, s); !slices.Equal(got, []string{"a/web-2@9"}) {
			t.Errorf("got %v", got)
		}
		// Rows of a resource that the cluster has no more are gone.
		stream.send(&feed.Message{Resource: pods, Absent: true})
		if got := rows(t, s); got != nil {
			t.Errorf("got %v", got)
		}
	})
}

// TestItemsOfWhatDiffers has more rows than are told as items at once.
func TestItemsOfWhatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, agents := newTestShared(t, fleetindex.Options{})
		_, stop := follow(t, s)
		defer stop()
		stream := agents.next(t)
		stream.send(&feed.Message{Resource: pods, Definition: &podColumn})
		var all []feed.Row
		for i := range itemsOf + 2 {
			row := pod(fmt.Sprint("web-", i), "1")
			row.Namespace = []string{"a", "b"}[i%2]
			all = append(all, row)
		}
		for some := range slices.Chunk(all, feed.MaxRows) {
			stream.send(&feed.Message{Resource: pods, Put: some})
		}
		stream.send(&feed.Message{Resource: pods, Again: true})
		stream = agents.next(t)
		if known := stream.request.Resources[1]; len(known.Digests) != 2 || len(known.Items) != 0 {
			t.Errorf("asked with digests of %d namespaces and items of %d", len(known.Digests), len(known.Items))
		}
		stream.send(&feed.Message{Resource: pods, Again: true, Differ: []string{"b", strings.Repeat("x", 1<<10)}})
		stream = agents.next(t)
		if known := stream.request.Resources[1]; len(known.Items) != 1 || len(known.Items["b"]) != 12*(itemsOf/2+1) {
			t.Errorf("asked with items of %d namespaces, %d bytes of b", len(known.Items), len(known.Items["b"]))
		}
	})
}

func TestHostileCluster(t *testing.T) {
	other := podColumn
	other.Resource = nodes
	escape := pod("escape", "3")
	escape.Name = "\x1b[2J"
	var definitions []*feed.Message
	for i := range 2*definitionsOf + 1 {
		one := podColumn
		one.Columns = []feed.Column{{Name: fmt.Sprint("Name ", i), Type: "string"}}
		definitions = append(definitions, &feed.Message{Resource: pods, Definition: &one})
	}
	large := pod("large", "3")
	large.Cells = []byte(`["` + strings.Repeat("x", 1<<20) + `"]`)
	for name, c := range map[string]struct {
		messages []*feed.Message
		// want are the rows then, and incomplete the reason for which others are missing.
		want       []string
		incomplete string
		ends       bool
	}{
		"a resource that was not asked for": {messages: []*feed.Message{{Resource: feed.Resource{Resource: "secrets"}, Put: []feed.Row{pod("x", "1")}}}, want: []string{"a/web-0@50"}, ends: true},
		"a definition of another resource":  {messages: []*feed.Message{{Resource: pods, Definition: &other}}, want: []string{"a/web-0@50"}, ends: true},
		"definitions without end":           {messages: definitions, ends: true},
		"rows without a definition":         {messages: []*feed.Message{{Resource: nodes, Put: []feed.Row{pod("x", "1")}}}, want: []string{"a/web-0@50"}, ends: true},
		"rows without end": {messages: []*feed.Message{{Resource: pods, Put: []feed.Row{pod("w1", "1"), pod("w2", "1"), pod("w3", "1"), pod("w4", "1")}}},
			want: []string{"a/w1@1", "a/w2@1", "a/web-0@50"}, incomplete: "more objects than"},
		"a cell of a megabyte":    {messages: []*feed.Message{{Resource: pods, Put: []feed.Row{large, pod("w1", "1")}}}, want: []string{"a/w1@1", "a/web-0@50"}, incomplete: "more than the bound"},
		"a version that is lower": {messages: []*feed.Message{{Resource: pods, Put: []feed.Row{pod("web-0", "7")}, Version: "7"}}, want: []string{"a/web-0@7"}},
		"a version of words":      {messages: []*feed.Message{{Resource: pods, Version: "seven"}}, want: []string{"a/web-0@50"}, ends: true},
		"a name with an escape":   {messages: []*feed.Message{{Resource: pods, Put: []feed.Row{escape}}}, want: []string{"a/web-0@50"}, ends: true},
		"UIDs that it never had":  {messages: []*feed.Message{{Resource: pods, GoneUIDs: []uint64{1, 2}}}, want: []string{"a/web-0@50"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, agents := newTestShared(t, fleetindex.Options{MaxRows: 3})
				_, stop := follow(t, s)
				defer stop()
				stream := agents.next(t)
				stream.snapshot(pod("web-0", "50"))
				for _, m := range c.messages {
					_ = stream.Write(m) // the index may have ended the stream
				}
				if ended := stream.hasEnded(); ended != c.ends {
					t.Errorf("the stream has ended: %v", ended)
				}
				got, listed := list(t, s)
				if !slices.Equal(got, c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
				if reason := listed[0].Incomplete; !strings.Contains(reason, c.incomplete) || c.incomplete == "" && reason != "" {
					t.Errorf("incomplete because of %q", reason)
				}
			})
		})
	}
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, agents := newTestShared(t, fleetindex.Options{})
		f, stop := follow(t, s)
		defer stop()
		stream := agents.next(t)
		stream.snapshot(pod("web-0", "1"))
		stream.send(&feed.Message{})
		heard := f.heard.Load()
		time.Sleep(maxSilence - time.Second)
		if stream.hasEnded() {
			t.Error("the stream has ended early")
		}
		time.Sleep(2 * time.Second)
		if !stream.hasEnded() || f.heard.Load() != heard {
			t.Error("a silent stream goes on, or the cluster counts as heard")
		}
		if again := agents.next(t); len(again.request.Resources[1].Items) != 1 {
			t.Errorf("asked for %+v", again.request)
		}
	})
}

// TestFlood sends as many messages as one cluster may in a burst, and as many as it may in ten seconds.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, agents := newTestShared(t, fleetindex.Options{})
		_, stop := follow(t, s)
		defer stop()
		stream := agents.next(t)
		began := time.Now()
		for range burstMessages + 10*messagesPerSecond {
			if err := stream.Write(&feed.Message{}); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("%d messages were taken in %v", burstMessages+10*messagesPerSecond, took)
		}
	})
}

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, agents := newTestShared(t, fleetindex.Options{})
		agents.refuse = &refusedError{http.StatusServiceUnavailable, "not now"}
		_, stop := follow(t, s)
		time.Sleep(time.Hour)
		stop()
		// Pauses of up to a minute are half a minute on average.
		if asked := agents.asked.Load(); asked < 70 || asked > 250 {
			t.Errorf("asked %d times in an hour", asked)
		}
	})
}

// TestClusterIsBack has a cluster away for so long that pauses are long. A stream and a question about rights each learn from the other
// that its agent is there.
func TestClusterIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, agents := newTestShared(t, fleetindex.Options{})
		clusters := &fakeClusters{fails: map[string]error{}, reviews: map[string]int{}}
		rights := newRights(clusters, func(string) string { return "uid-a" }, 0, s)
		f, stop := follow(t, s)
		defer stop()
		agents.next(t)
		s.followed.Store(f.cluster, &f.progress)
		as, err := newCaller(jane)
		if err != nil {
			t.Fatal(err)
		}
		ask := func() verdict {
			return rights.ask(t.Context(), as, f.cluster, []feed.Question{{Resource: pods, Verb: verbList}}, 1).wait(t.Context())[0]
		}
		for err, want := range map[error]bool{errAway: true, &refusedError{http.StatusServiceUnavailable, "not now"}: false} {
			agents.refuse = err
			if stream := agents.stream; stream != nil {
				_ = stream.pipe.Close()
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			agents.refuse = nil
			began := time.Now()
			if v := ask(); !v.isAllowed {
				t.Errorf("%v: got %+v", err, v)
			}
			if agents.next(t); time.Since(began) == 0 != want {
				t.Errorf("%v: a new stream after %s", err, time.Since(began))
			}
		}
		time.Sleep(lasting) // the next pause is short
		clusters.fails["a"] = errAway
		if v := ask(); !v.isAway {
			t.Errorf("got %+v", v)
		}
		delete(clusters.fails, "a")
		_ = agents.stream.pipe.Close()
		agents.next(t)
		if v := ask(); !v.isAllowed || v.isAway {
			t.Errorf("after a new stream: %+v", v)
		}
	})
}

func TestOwnerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, agents := newTestShared(t, fleetindex.Options{})
		one, stop := follow(t, s)
		defer stop()
		stream := agents.next(t)
		stream.snapshot(pod("web-0", "1"))
		agents.refuse = &refusedError{http.StatusForbidden, "noIndex"}
		_ = stream.pipe.Close()
		time.Sleep(2 * firstPause)
		synctest.Wait()
		if got := rows(t, s); got != nil {
			t.Errorf("after the owner's refusal: %v", got)
		}
		// It is not behind, nor the oldest, however long that lasts.
		f := &fleet{shared: s, following: map[string]*followed{"a": {one, stop}}}
		f.report(time.Now().Add(time.Hour))
		refused, behind := testutil.ToFloat64(s.metrics.clusters.WithLabelValues(stateRefused)), testutil.ToFloat64(s.metrics.clusters.WithLabelValues(stateBehind))
		if oldest := testutil.ToFloat64(s.metrics.oldest); refused != 1 || behind != 0 || oldest != 0 {
			t.Errorf("%v clusters refuse, %v are behind, the oldest by %v s", refused, behind, oldest)
		}
	})
}

// TestStoreGoes takes the store away under a stream, and gives it back.
func TestStoreGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := filepath.Join(t.TempDir(), "index.db")
		s, agents := newTestShared(t, fleetindex.Options{Location: at})
		db, err := sql.Open("sqlite", at)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		rename := func(from, to string) {
			if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to); err != nil {
				t.Fatal(err)
			}
		}
		f, stop := follow(t, s)
		defer stop()
		stream := agents.next(t)
		stream.snapshot(pod("web-0", "1"))
		rename("object", "gone")
		_ = stream.Write(&feed.Message{Resource: pods, Put: rowsOf("web-1")})
		if !stream.hasEnded() {
			t.Error("the stream goes on")
		}
		time.Sleep(lasting)
		synctest.Wait()
		// Nothing is asked of an agent without a store, and each failure is counted.
		asked, failed := agents.asked.Load(), testutil.ToFloat64(s.metrics.storeErrors)
		if asked != 1 || failed < 2 || testutil.ToFloat64(s.metrics.ended.WithLabelValues(endedStore)) != failed {
			t.Errorf("the agent was asked %d times, %v errors are counted", asked, failed)
		}
		rename("gone", "object")
		stream = agents.next(t)
		if known := stream.request.Resources[1]; len(known.Digests) != 1 || known.Items["shop"] == nil {
			t.Errorf("then the agent was told of %+v", known)
		}
		stream.send(&feed.Message{Resource: pods, Definition: &podColumn}, &feed.Message{Resource: pods, Put: rowsOf("web-1"), Version: "101", Synced: true}, &feed.Message{Resource: nodes, Absent: true})
		if got := rows(t, s); !slices.Equal(got, []string{"a/web-0@1", "a/web-1@1"}) || f.rows.Load() != 2 {
			t.Errorf("got %v", got)
		}
	})
}

// TestTakenOver has another process claim the cluster.
func TestTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, agents := newTestShared(t, fleetindex.Options{})
		_, stop := follow(t, s)
		defer stop()
		stream := agents.next(t)
		stream.snapshot(pod("web-0", "1"))
		if _, err := s.store.Claim(t.Context(), fleetindex.Cluster{Name: "a", UID: "uid-a"}); err != nil {
			t.Fatal(err)
		}
		_ = stream.Write(&feed.Message{Resource: pods, Put: []feed.Row{pod("web-1", "1")}})
		if !stream.hasEnded() {
			t.Error("the stream of a writer that is fenced goes on")
		}
		if got := rows(t, s); !slices.Equal(got, []string{"a/web-0@1"}) {
			t.Errorf("got %v", got)
		}
	})
}
