package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/bench/ground"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// alertFault is something that goes wrong, and the alerts that say so, by the name,
// severity and process of their rules.
type alertFault struct {
	what   string
	alerts []string
	// unscraped is the kind of processes that Prometheus lacks.
	unscraped string
	// begin makes the fault; what it returns ends it, which the end of the test does too.
	begin func(t *testing.T) (end func())
}

// alertFaults are in an order in which none hides another.
func alertFaults() []alertFault {
	return []alertFault{
		{"Prometheus does not find the addon manager", []string{"ClusterProxyMissing critical addon manager"}, "addon manager", nil},
		{"Prometheus does not find the proxy servers", []string{"ClusterProxyMissing critical proxy server"}, "proxy server", nil},
		{"Prometheus does not find the proxy API", []string{"ClusterProxyMissing critical proxy API"}, "proxy API", nil},
		{"three clusters whose agents never come", []string{"ClusterProxyAgentAway warning", "ClusterProxyManyAgentsAway critical"}, "", addNobody},
		{"an agent that declares another cluster's name", []string{"ClusterProxyAgentsRejected warning"}, "", declareAnother},
		{"a cluster asks for another cluster's certificate", []string{"ClusterProxyCSRsRejected warning"}, "", askForAnother},
		{"somebody dials proxy servers without a certificate", []string{"ClusterProxyHandshakesFail warning"}, "", dialWithout},
		{"somebody opens connections and says nothing", []string{"ClusterProxyHandshakeFlood warning"}, "", dialAndWait},
		{"somebody tries tokens", []string{"ClusterProxyTokenFlood warning"}, "", tryTokens},
		{"the list of exposed Services cannot be read", []string{"ClusterProxyExposedServicesInvalid warning"}, "", breakExposedServices},
		{"the proxy API has next to no memory", []string{"ClusterProxyMemoryFull warning"}, "", takeMemory},
		{"recordings cannot be written", []string{"ClusterProxyRecordingsFail warning"}, "", breakRecordings},
		{"agents of a cluster answer after two seconds", []string{"ClusterProxySlow critical", "ClusterProxySlow warning"}, "", slowAgents},
		{"no node takes a proxy server that went", []string{"ClusterProxyServersShort warning"}, "", keepServerOut},
		{"the proxy servers are frozen", []string{"ClusterProxyServersUnreachable critical", "ClusterProxyErrors critical", "ClusterProxyErrors warning"}, "", freezeProxyServers},
		{"the hub's kube-apiserver is frozen", []string{"ClusterProxyHubOutage critical"}, "", freezeHub},
		{"the hub CA is replaced by one that ends in a day, while a cluster is off", []string{"ClusterProxyCertificateEndsSoon critical", "ClusterProxyCertificateEndsSoon warning", "ClusterProxyCARotationStuck warning"}, "", provideShortCA},
	}
}

// TestAlerts makes a fault for every alert of the chart's rules: the alert fires while the
// fault lasts, and ends after it. It writes the file that E2E_ALERTS names. It disturbs
// everything.
func TestAlerts(t *testing.T) {
	file := os.Getenv("E2E_ALERTS")
	if file == "" {
		t.Skip("make e2e-alerts runs it")
	}
	installed.NeedLab(t, "scrapes processes of this machine")
	p := startPrometheus(t)
	background(t, 50*time.Millisecond, func() { usersAtWork(t) })
	suite.Eventually(t, "no alert", func() error { return p.quiet("") })
	seen := map[string]bool{}
	var table strings.Builder
	fmt.Fprintf(&table, "What has to go wrong for each alert, and how long after that it fired and ended, with rules that wait for one second instead of minutes\nand look back for 10 to 30 seconds instead of 5 minutes to 3 days. `make e2e-alerts` writes it, with a Prometheus that scrapes each second.\n\n")
	fmt.Fprintf(&table, "| fault | alert | fired, s | ended, s |\n|---|---|---:|---:|\n")
	for _, fault := range alertFaults() {
		t.Run(fault.what, func(t *testing.T) { fault.watch(t, p, seen, &table) })
	}
	rules, err := p.alertRules()
	if err != nil {
		t.Fatal(err)
	}
	for rule := range rules {
		if !seen[rule] {
			t.Errorf("no fault makes alert %s fire", rule)
		}
	}
	if t.Failed() {
		return
	}
	if err := ground.Record(file, table.String()); err != nil {
		t.Fatal(err)
	}
}

// watch makes the fault, and ends it when its alerts have fired.
func (f alertFault) watch(t *testing.T, p *testPrometheus, seen map[string]bool, table *strings.Builder) {
	began, end := time.Now(), func() {}
	if f.begin != nil {
		end = sync.OnceFunc(f.begin(t))
		defer end()
	}
	fired := map[string]time.Duration{}
	suite.Eventually(t, fmt.Sprint("firing ", f.alerts), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_ = p.scrape(ctx, f.unscraped) // the hub may not answer
		firing, err := p.alertRules()
		for _, alert := range f.alerts {
			if _, ok := fired[alert]; !ok && firing[alert] {
				fired[alert] = time.Since(began)
			}
		}
		if err != nil || len(fired) < len(f.alerts) {
			return fmt.Errorf("have fired: %v, %w", fired, err)
		}
		return nil
	})
	end()
	ended := time.Now()
	after := map[string]time.Duration{}
	suite.Eventually(t, "no alert any more", func() error {
		firing, err := p.alertRules()
		for _, alert := range f.alerts {
			if _, ok := after[alert]; !ok && err == nil && !firing[alert] {
				after[alert] = time.Since(ended)
			}
		}
		return p.quiet("")
	})
	for _, alert := range f.alerts {
		seen[alert] = true
		fmt.Fprintf(table, "| %s | %s | %.0f | %.0f |\n", f.what, alert, fired[alert].Seconds(), after[alert].Seconds())
	}
}

// quiet scrapes, and has an error while an alert fires.
func (p *testPrometheus) quiet(but string) error {
	if err := p.scrape(p.t.Context(), but); err != nil {
		return err
	}
	rules, err := p.alertRules()
	for rule, fires := range rules {
		if fires {
			err = fmt.Errorf("%s fires", rule)
		}
	}
	return err
}

// alertRules are the rules of alerts by name, severity and process, and whether they fire.
func (p *testPrometheus) alertRules() (map[string]bool, error) {
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name, State string
					Labels      map[string]string
				}
			}
		}
	}
	if err := p.get("rules?type=alert", &answer); err != nil {
		return nil, err
	}
	rules := map[string]bool{}
	for _, group := range answer.Data.Groups {
		for _, rule := range group.Rules {
			rules[strings.TrimSpace(rule.Name+" "+rule.Labels["severity"]+" "+rule.Labels["process"])] = rule.State == "firing"
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("prometheus has no rules")
	}
	return rules, nil
}
