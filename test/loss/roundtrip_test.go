//go:build benchloss

package loss

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

const (
	long    = 64 << 20
	longOut = "../bench/roundtrip.txt"
	// windowShare is what of a window in each round trip a stream moves at least.
	windowShare = 0.7
	// plainShare is what a carrier's connection moves at least of what one moves that
	// nothing was set on.
	plainShare = 0.7
)

// TestLongRoundTrip downloads over 80 ms of the kernel's own TCP. A carrier is a TCP
// connection with limits on what waits in the kernel, and nothing of it is in the
// way of TCP's window, which grows with the link. A stream among many has a window
// of ours.
func TestLongRoundTrip(t *testing.T) {
	far := link{roundTrip: 80 * time.Millisecond}
	carriers := func(conn net.Conn) net.Conn { return dial.TCP{}.Tune(conn) }
	var text bytes.Buffer
	fmt.Fprintf(&text, "Downloads of %d MiB at a round trip of %s, no packet lost, cubic; median of %d, each on a connection of its own.\n\n", long>>20, far.roundTrip, rounds)
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "connection\tMB/s")
	rates := map[string]float64{}
	for _, row := range []struct {
		name, protocol string
		tune           func(net.Conn) net.Conn
	}{
		{plainRow, "http/1.1", plain},
		{carrierRow, "http/1.1", carriers},
		{streamRow, "h2", plain},
	} {
		t.Run(row.name, func(t *testing.T) {
			rates[row.name] = rate(t, far.join(t, "cubic", row.tune, row.protocol), row.protocol)
			fmt.Fprintf(w, "%s\t%.1f\n", row.name, rates[row.name])
		})
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	if rates[carrierRow] < plainShare*rates[plainRow] {
		t.Errorf("a carrier moves %.1f MB/s, a plain connection %.1f", rates[carrierRow], rates[plainRow])
	}
	if want := windowShare * httprelay.Window / far.roundTrip.Seconds() / 1e6; rates[streamRow] < want {
		t.Errorf("a stream moves %.1f MB/s, want %.1f", rates[streamRow], want)
	}
	if err := os.WriteFile(longOut, text.Bytes(), 0o644); err != nil {
		t.Error(err)
	}
}

const (
	plainRow   = "TCP with nothing set"
	carrierRow = "TCP as carriers have it"
	streamRow  = "one HTTP/2 stream of the proxy API"
	rounds     = 5
)

// rate is the median of downloads in MB/s.
func rate(t *testing.T, p place, protocol string) float64 {
	t.Helper()
	var rates []float64
	for range rounds {
		var client http.RoundTripper = &http.Transport{
			DisableKeepAlives: true,
			DialTLSContext:    func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx) },
		}
		if protocol == "h2" {
			shared := &httprelay.Shared{Dial: p.dial, Spread: 1, Streams: 250, IdleTimeout: time.Minute}
			defer shared.Retire()
			client = shared
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/long", nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		resp, err := client.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n != long {
			t.Fatalf("read %d bytes of %d: %v", n, long, err)
		}
		_ = resp.Body.Close()
		rates = append(rates, float64(n)/time.Since(began).Seconds()/1e6)
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}
