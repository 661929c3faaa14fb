package hostile

import (
	"strconv"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// testClockSkew connects agents and proxy servers with certificates whose issuer's
// clock is off. To the side that verifies them this looks as if its own clock were
// off the other way.
func (s *Suite) testClockSkew(t *testing.T) {
	const tolerated, hour = 5*time.Minute - 10*time.Second, time.Hour
	real := strconv.Itoa(s.Lab.AgentPort)
	agentCA, hubCA := s.ca(t, agentSigner), s.ca(t, hubSigner)
	t.Run("agent off by minutes", func(t *testing.T) {
		agent := s.agent(t, s.attacker(), issue(t, agentCA, agentLeaf(s.attacker()), tolerated), real)
		agent.Await(t, "the agent to connect", func() error { return agent.probe("/readyz") })
	})
	t.Run("proxy server off by minutes", func(t *testing.T) {
		hub := s.hostileHub(t, issue(t, hubCA, serverLeaf(), tolerated))
		agent := s.agent(t, s.attacker(), s.agentCertificate(t, s.attacker()), hub.agents)
		agent.Await(t, "the agent to connect", func() error { return agent.probe("/readyz") })
	})
	t.Run("agent off by an hour", func(t *testing.T) {
		server := s.watch(t, proxyServer, `cluster_proxy_server_tls_failures_total{reason="clock-skew"}`)
		agent := s.agent(t, s.attacker(), issue(t, agentCA, agentLeaf(s.attacker()), hour), real)
		server.check(t, 1, "TLS handshake failed", "clock-skew", "clock skew")
		agent.watch(t, `cluster_proxy_agent_tls_failures_total{reason="clock-skew"}`)
		checkSkew(t, agent)
	})
	t.Run("proxy server off by an hour", func(t *testing.T) {
		hub := s.hostileHub(t, issue(t, hubCA, serverLeaf(), hour))
		checkSkew(t, s.agent(t, s.attacker(), s.agentCertificate(t, s.attacker()), hub.agents))
	})
}

// checkSkew waits until an agent that has just started says that clocks differ.
func checkSkew(t *testing.T, agent *process) {
	t.Helper()
	n := agent.watch(t, `cluster_proxy_agent_tls_failures_total{reason="clock-skew"}`)
	n.offset, n.before = nil, 0 // it may have said so already
	n.check(t, 1, "TLS with the proxy server failed", "clock-skew", "clock skew", "NTP")
	if err := agent.probe("/readyz"); err == nil {
		t.Errorf("an agent of %s without a tunnel is ready", identity.AddonName)
	}
}
