//go:build benchapi

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	bulkGet   = "LIST of 16 MiB"
	unread    = "beside 16 readers that stopped"
	bulkItems = 32
)

// makeBulk makes objects that are bulkItems half MiB together.
func makeBulk(t *testing.T, doors []door, ns string) {
	cs := clientset(t, doors[0].cfg)
	for i := range bulkItems {
		if _, err := cs.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bulk", i), Labels: map[string]string{"bench": "bulk"}}, Data: map[string]string{"a": strings.Repeat("x", 512<<10)},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// bulk measures how fast one large answer comes.
func (f figures) bulk(t *testing.T, doors []door, path string) {
	if !benchRows.MatchString(bulkGet) {
		return
	}
	for round := range benchRounds {
		for _, door := range inTurn(doors, round) {
			t.Logf("%s, %s (%d of %d)", bulkGet, door.name, round+1, benchRounds)
			client := caller(t, door.cfg)
			start := time.Now()
			if err := get(client, strings.TrimSuffix(door.cfg.Host, "/")+path, http.StatusOK); err != nil {
				t.Error(err)
				continue
			}
			f.add(bulkGet+", MB/s", door.name, bulkItems*(512<<10)/1e6/time.Since(start).Seconds())
		}
	}
}

// stalled measures a user beside others who ask for large answers and do not read
// them, and what these take in our processes.
func (f figures) stalled(t *testing.T, doors []door, path, small string) {
	const readers = 16
	if !benchRows.MatchString(unread) {
		return
	}
	for round := range benchRounds {
		for _, door := range inTurn(doors, round) {
			t.Logf("%s, %s (%d of %d)", unread, door.name, round+1, benchRounds)
			_, before := used(t)
			ctx, cancel := context.WithCancel(t.Context())
			var bodies []io.Closer
			for range readers {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(door.cfg.Host, "/")+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := caller(t, door.cfg).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				bodies = append(bodies, resp.Body)
			}
			load1, done := context.WithTimeout(t.Context(), warmUp+measured)
			rate, took := load(load1, t, door.cfg, small, 1, http.StatusOK)
			done()
			_, after := used(t)
			f.add(unread+", KiB each in our processes", door.name, (after-before)/readers)
			if len(took) > 0 {
				f.add(unread+", small GET per second", door.name, rate)
				f.add(unread+", small GET p99 ms", door.name, took[len(took)*99/100].Seconds()*1e3)
			}
			cancel()
			for _, body := range bodies {
				_ = body.Close()
			}
		}
	}
}
