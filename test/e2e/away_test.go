package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// mostRequests is how many requests kubectl makes for a cluster of which it knows nothing:
// discovery twice, for five times. One that obeys Retry-After makes 55.
const mostRequests = 12

// wantAwayByKubectl runs kubectl, with nothing in its cache, for a cluster whose agents have
// stopped: it fails at once, and says which cluster is away, whatever way it takes.
func wantAwayByKubectl(t *testing.T, away string) {
	t.Helper()
	for _, endpoint := range installed.Endpoints(away) {
		if endpoint.Name == "direct" || endpoint.Name == "proxy-api" {
			continue // not the hub's, and with a token of the cluster, which is told nothing of it
		}
		t.Run(endpoint.Name, func(t *testing.T) {
			suite.Eventually(t, away+" to be away", func() error {
				resp, s, err := suite.TryStatus(t.Context(), endpoint.Cfg, "/version")
				if err != nil {
					return err
				}
				if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "" {
					return fmt.Errorf("answered %d, Retry-After %q: %s", resp.StatusCode, resp.Header.Get("Retry-After"), s.Message)
				}
				return nil
			})
			cmd, err := installed.KubectlCommand(t.Context(), "away-"+endpoint.Name, endpoint.Cfg, "--cache-dir="+t.TempDir(), "--v=6", "get", "pods")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			out, err := cmd.CombinedOutput()
			took := time.Since(began)
			requests := strings.Count(string(out), `"Response" `)
			t.Logf("%s: %d requests in %s", endpoint.Name, requests, took.Round(10*time.Millisecond))
			var said []string // what is no log
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, "Warning:") || strings.HasPrefix(line, "Error") {
					said = append(said, strings.TrimSpace(line))
				}
			}
			if err == nil || requests == 0 || requests > mostRequests {
				t.Errorf("kubectl ends with %v after %d requests, want a failure after at most %d:\n%s", err, requests, mostRequests, out)
			}
			if text := strings.Join(said, "\n"); !strings.Contains(text, `"`+away+`"`) {
				t.Errorf("kubectl says\n%s\nwant the name of the cluster", text)
			}
		})
	}
}
