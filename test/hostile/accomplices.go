package hostile

import (
	"os/exec"
	"strconv"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// agent runs the addon's binary as the agent of a cluster that the lab does not have, with a
// certificate of the test's choice. It leads to the attacker's kube-apiserver.
func (s *Suite) agent(t *testing.T, cluster string, pair pki.KeyPair) *program.Program {
	t.Helper()
	files, health := write(t, pair, s.HubCA), strconv.Itoa(ports.Take(t))
	p := program.Start(t, "agent", exec.Command(s.binary,
		"proxy-agent", "--cluster-name="+cluster, "--proxy-server-host=127.0.0.1", "--proxy-server-port="+strconv.Itoa(s.Lab.AgentPort),
		"--agent-identifiers="+identity.Identifiers(identity.Hosts(cluster, identity.DefaultAgentNamespace)),
		"--kubeconfig="+s.Lab.Managed[s.attacker()].KubeconfigPath, "--ca-cert="+files.CA, "--agent-cert="+files.Cert, "--agent-key="+files.Key,
		"--handler-port=0", "--health-server-port="+health, "--admin-server-port="+strconv.Itoa(ports.Take(t)), "--graceful-shutdown-timeout=1s", "--min-drain-duration=0s"))
	p.Await(t, "the agent to start", func() error {
		_, err := plainhttp.Get(t.Context(), "http://127.0.0.1:"+health+"/livez")
		return err
	})
	return p
}
