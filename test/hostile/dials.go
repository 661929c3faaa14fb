package hostile

import (
	"net"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// testDials has a proxy server in the attacker's hands ask a real agent for
// connections that it must not open.
func (s *Suite) testDials(t *testing.T) {
	hub := s.hostileHub(t, issue(t, s.ca(t, hubSigner), serverLeaf(), 0))
	agent := s.agent(t, s.attacker(), s.agentCertificate(t, s.attacker()), hub.agents)
	agent.Await(t, "the agent to connect to the hostile hub", func() error { return agent.probe("/readyz") })

	trap, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer trap.Close()
	trapped := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := trap.Accept()
			if err != nil {
				return
			}
			trapped <- struct{}{}
			_ = conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(trap.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ network, address, reason string }{
		{"tcp", trap.Addr().String(), "destination"},
		{"tcp", "localhost:" + port, "destination"},
		{"tcp", "[::ffff:127.0.0.1]:" + port, "destination"},
		{"tcp", "0.0.0.0:" + port, "destination"},
		{"tcp", "169.254.169.254:80", "destination"},
		{"tcp", "metadata.google.internal:80", "destination"},
		{"tcp", "[fe80::1]:80", "destination"},
		{"tcp", "[fd00:ec2::254]:80", "destination"},
		{"tcp", "kubernetes.default.svc:443", "destination"},
		{"tcp", "unlisted.default.svc:80", "destination"},
		{"tcp", s.victim() + ":443", "destination"},
		{"tcp", identity.HandlerHost(s.victim()) + ":7443", "destination"},
		{"tcp", identity.HandlerHost(s.attacker()) + ":8093", "destination"},
		{"tcp", s.attacker(), "address"},
		{"udp", s.attacker() + ":443", "network"},
		{"unix", "/var/run/docker.sock", "network"},
	} {
		t.Run(test.network+" "+test.address, func(t *testing.T) {
			n := agent.watch(t, `cluster_proxy_agent_dials_rejected_total{reason="`+test.reason+`"}`)
			text, err := hub.dial(t, test.network, test.address)
			if err != nil || !strings.Contains(text, "denied by policy") {
				t.Errorf("the hub got the answer %q, %v; want it denied by policy", text, err)
			}
			n.check(t, 1, "Denied a dial", `network="`+test.network+`"`, test.address, `reason="`+test.reason+`"`)
		})
	}
	select {
	case <-trapped:
		t.Error("the agent has dialed a loopback address")
	default:
	}
	// The hub itself works: what is allowed arrives.
	if text, err := hub.dial(t, "tcp", s.attacker()+":443"); err != nil || text != "" {
		t.Errorf("dialing the kube-apiserver: %q, %v, want a connection", text, err)
	}
}
