package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

const monitoringFiles = "../../charts/cluster-proxy/files"

// TestMonitoring has a Prometheus scrape every process of the addon, with the chart's
// rules, and the agents through the tunnel as docs/how-to/monitor.md says. Nothing fires while nothing is wrong. Then agents of a cluster go away, the
// proxy API is not scraped, somebody tries tokens and somebody dials without a certificate:
// an alert fires for each, and ends with its fault. Each query of each dashboard
// returns data. It disturbs one cluster, whose agents stop for a while.
func TestMonitoring(t *testing.T) {
	long.Test(t)
	installed.NeedLab(t, "scrapes processes of this machine")
	if onNodes {
		t.Skip("scrapes processes of this machine: make test")
	}
	away := installed.Clusters[1]
	p := startPrometheus(t)
	background(t, 50*time.Millisecond, func() { usersAtWork(t) })
	suite.Eventually(t, "every process scraped, and no alert", func() error {
		if err := p.scrape(t.Context(), ""); err != nil {
			return err
		}
		for _, kind := range installed.Kinds(t, away) {
			if n, err := p.count(fmt.Sprintf("up{job=%q} == 1", kind.Name)); err != nil || n == 0 {
				return fmt.Errorf("%d processes of kind %s are scraped, %v, want some", n, kind.Name, err)
			}
		}
		if err := p.scrapesThroughTunnel(len(installed.Clusters)); err != nil {
			return err
		}
		n, err := p.count("count(cluster_proxy:clusters) == " + fmt.Sprint(len(installed.Clusters)))
		alerts, err1 := p.alerts()
		// A busy machine misses service levels.
		maps.DeleteFunc(alerts, func(name string, _ bool) bool { return name == "ClusterProxySlow" || name == "ClusterProxyErrors" })
		if err1 != nil || len(alerts) > 0 {
			return fmt.Errorf("alerts %v, %w, want none", slices.Sorted(maps.Keys(alerts)), err1)
		}
		if n != 1 {
			return fmt.Errorf("not %d clusters with the addon, %v", len(installed.Clusters), err)
		}
		return nil
	})

	installed.StopAgents(t, away)
	token, config := wrongToken(t), installed.ClientTLS(t)
	config.Certificates = nil
	endTokens := background(t, 10*time.Millisecond, func() { _ = token(t.Context()) })
	endHandshakes := background(t, 200*time.Millisecond, func() { noCertificate(config) })
	faults := []string{"ClusterProxyAgentAway " + away, "ClusterProxyMissing proxy API", "ClusterProxyTokenFlood", "ClusterProxyHandshakesFail certificate"}
	empty := dashboardQueries(t)
	fired := map[string]bool{}
	suite.Eventually(t, "an alert for each fault, and data for each dashboard", func() error {
		// Dashboards and the other alerts need what the proxy API says.
		withoutAPI := ""
		if len(empty) == 0 && len(fired) >= len(faults)-1 {
			withoutAPI = "proxy API"
		}
		if err := p.scrape(t.Context(), withoutAPI); err != nil {
			return err
		}
		alerts, err := p.alerts()
		for _, fault := range faults {
			fired[fault] = fired[fault] || alerts[fault]
		}
		maps.DeleteFunc(fired, func(_ string, did bool) bool { return !did })
		for where, query := range empty {
			if n, _ := p.count(query); n > 0 {
				delete(empty, where)
			}
		}
		if err == nil {
			err = p.scrapesThroughTunnel(len(installed.Clusters) - 1)
		}
		if err != nil || len(fired) < len(faults) || len(empty) > 0 {
			return fmt.Errorf("only %v have fired, now %v, %w, want %v; no data for %q", slices.Sorted(maps.Keys(fired)), slices.Sorted(maps.Keys(alerts)), err, faults, empty)
		}
		return nil
	})

	endTokens()
	endHandshakes()
	installed.StartAgents(t, away)
	suite.Eventually(t, "all alerts ended", func() error {
		if err := p.scrape(t.Context(), ""); err != nil {
			return err
		}
		if err := p.scrapesThroughTunnel(len(installed.Clusters)); err != nil {
			return err
		}
		alerts, err := p.alerts()
		maps.DeleteFunc(alerts, func(name string, _ bool) bool { return !slices.Contains(faults, name) })
		if err != nil || len(alerts) > 0 {
			return fmt.Errorf("%v fire, %w", slices.Sorted(maps.Keys(alerts)), err)
		}
		return nil
	})
	suite.Eventually(t, away+" reachable again", func() error { return installed.Reachable(t.Context(), away) })
}

// background does something again and again, until the test ends or end is called.
func background(t *testing.T, every time.Duration, do func()) (end func()) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				do()
			}
		}
	}()
	stopped := false
	end = func() {
		if !stopped {
			stopped = true
			close(done)
			<-ended
		}
	}
	t.Cleanup(end)
	return end
}

// usersAtWork asks each cluster and the view of all for something. Failures
// count too.
func usersAtWork(t *testing.T) {
	for _, cluster := range installed.Clusters {
		cfg := installed.ThroughProxyAPI(cluster)
		cfg.BearerToken = installed.HubToken
		_ = suite.Once(t.Context(), cfg)
	}
	_ = suite.Get(t.Context(), installed.ViewEndpoints("all", installed.HubToken)[0].Cfg, "/api/v1/namespaces?limit=1")
}

// wrongToken returns a function that asks with a token that nobody knows.
func wrongToken(t *testing.T) func(context.Context) error {
	t.Helper()
	cfg := installed.ThroughProxyAPI(installed.Clusters[0])
	cfg.BearerToken = "unknown"
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/version", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
}

// noCertificate dials a proxy server without a certificate.
func noCertificate(config *tls.Config) {
	conn, err := tls.Dial("tcp", installed.ProxyServer, config)
	if err != nil {
		return
	}
	defer conn.Close()
	// In TLS 1.3 only the first read says that the server refuses. It closes what it refuses.
	_, _ = conn.Read(make([]byte, 1))
}

// dashboardQueries are the queries of all dashboards, by where they are.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	boards, err := filepath.Glob(filepath.Join(monitoringFiles, "dashboards", "*.json"))
	if err != nil || len(boards) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	queries := map[string]string{}
	for _, file := range boards {
		if filepath.Base(file) == "index.json" {
			continue // the chart makes it with a fleet index only
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Title  string
			Panels []struct {
				Title   string
				Targets []struct{ RefID, Expr string }
			}
		}
		if err := json.Unmarshal(content, &board); err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				queries[board.Title+", "+panel.Title+", "+target.RefID] = strings.ReplaceAll(target.Expr, "$__rate_interval", "10s")
			}
		}
	}
	return queries
}
