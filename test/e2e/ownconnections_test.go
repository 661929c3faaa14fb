package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// ownConnections sends requests between the cluster's machine and the hub's without
// the addon, each on a connection that it has for itself while it lasts: what the
// network lets a small request have. The fence lets connections begin on the cluster
// only, so the client is there; each round trip takes the same way.
func (f *faultLab) ownConnections(t *testing.T) (once func(context.Context) error) {
	t.Helper()
	cfg := installed.HubConfig()
	cfg.ServerName = "kubernetes"
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(f.machine("hub").Address, "6443")
	transport := &http.Transport{
		TLSClientConfig:     tlsConfig,
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return f.nodes.Dial(ctx, f.cluster, address) },
		MaxIdleConnsPerHost: 100,
	}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/api/v1/namespaces/default", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("answered %s", resp.Status)
		}
		return nil
	}
}

// between are the requests that went well between two times, in part at least.
func (s *sampler) between(from, to time.Time) (found []sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.err == nil && r.ended.After(from) && r.began.Before(to) {
			found = append(found, r)
		}
	}
	return found
}

// slow says when which of them took long.
func (s *sampler) slow(from, to time.Time) string {
	var text strings.Builder
	for _, r := range s.between(from, to) {
		if took := r.ended.Sub(r.began); took > smallLimit {
			fmt.Fprintf(&text, "%s after %s, ", round(took), round(r.began.Sub(from)))
		}
	}
	return text.String()
}

func (s *sampler) p99(from, to time.Time) time.Duration {
	var times []time.Duration
	for _, r := range s.between(from, to) {
		times = append(times, r.ended.Sub(r.began))
	}
	slices.Sort(times)
	if len(times) == 0 {
		return 0
	}
	return times[len(times)*99/100]
}
