package hostile

import (
	"context"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// process is the addon's binary as an accomplice.
type process struct {
	*program.Program
	health string // host:port of probes and metrics
}

func (s *Suite) start(t *testing.T, name, health string, args ...string) *process {
	t.Helper()
	p := &process{program.Start(t, name, exec.Command(s.Binary, args...)), health}
	p.Await(t, name+" to start", func() error { return p.probe("/livez") })
	return p
}

func (p *process) probe(path string) error {
	_, err := plainhttp.Get(context.Background(), "http://"+p.health+path)
	return err
}

// local returns a port of this machine for an accomplice to listen on.
func local(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(ports.Take(t))
}

// issue signs a certificate as somebody whose clock is off.
func issue(t *testing.T, ca *pki.CA, leaf pki.Leaf, off time.Duration) pki.KeyPair {
	t.Helper()
	leaf.Validity = 24 * time.Hour
	pair, err := ca.Issue(leaf, time.Now().Add(off))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func agentLeaf(cluster string) pki.Leaf {
	return pki.Leaf{
		CommonName: identity.AgentCommonName(cluster), Organizations: identity.AgentOrganizations(cluster),
		DNSNames: []string{identity.HandlerHost(cluster)}, Client: true, Server: true,
	}
}

// agent runs a cluster's agent with a certificate and a proxy server of the
// test's choice. One of a cluster that the lab does not have needs --kubeconfig.
func (s *Suite) agent(t *testing.T, cluster string, pair pki.KeyPair, proxyServerPort string, more ...string) *process {
	t.Helper()
	files := write(t, pair, s.hubCA)
	health := local(t)
	if real := s.Lab.Managed[cluster]; real != nil {
		more = append(more, "--kubeconfig="+real.KubeconfigPath)
	}
	return s.start(t, "agent", "127.0.0.1:"+health, append([]string{
		"proxy-agent", "--cluster-name=" + cluster, "--proxy-server-host=127.0.0.1", "--proxy-server-port=" + proxyServerPort,
		"--agent-identifiers=" + identity.Identifiers([]string{cluster + "." + identity.DefaultAgentNamespace}),
		"--ca-cert=" + files.CA, "--agent-cert=" + files.Cert, "--agent-key=" + files.Key,
		"--handler-port=0", "--health-server-port=" + health, "--admin-server-port=" + local(t), "--graceful-shutdown-timeout=1s", "--min-drain-duration=0s",
	}, more...)...)
}
