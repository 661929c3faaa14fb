package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// showFirst sends a request through a tunnel as soon as there is a kube-apiserver. OCM and what
// else the lab needs is built from then on.
func (d *demo) showFirst(ctx context.Context) (err error) {
	dir := filepath.Join(d.dir, "first")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	cluster, err := lab.StartControlPlane(ctx, dir, d.out)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	d.buildRest(ctx)
	t := &tunnel{demo: d, dir: dir, name: clusters[0]}
	defer func() { err = errors.Join(err, t.stop()) }()
	if err := t.start(ctx, cluster.KubeconfigPath); err != nil {
		return err
	}
	out, err := t.ask(ctx, cluster.KubeconfigPath)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "version v1.") {
		return errors.New("the example did not say the cluster's version")
	}
	fmt.Fprintf(d.out, "\nThe first request was answered after %s. Its TLS was between the client and the kube-apiserver, by the name that this has in the tunnel.\n", time.Since(d.started).Round(time.Second))
	return nil
}

// buildRest builds in the background what the lab needs and the first request did not.
func (d *demo) buildRest(ctx context.Context) {
	built := make(chan error, 1)
	go func() {
		_, err := lab.BuildAssets(ctx, "", d.out)
		built <- err
	}()
	d.built = built
}

// awaitRest waits for buildRest.
func (d *demo) awaitRest(context.Context) error {
	err := <-d.built
	d.built = nil
	return err
}

// tunnel is a proxy server and an agent without OCM: what the addon manager does for them is done
// by hand.
type tunnel struct {
	demo      *demo
	dir, name string
	clients   string // the proxy server's address for clients

	processes []*exec.Cmd
}

func (t *tunnel) file(name string) string { return filepath.Join(t.dir, name) }

// start returns when the agent has a tunnel to the proxy server.
func (t *tunnel) start(ctx context.Context, kubeconfig string) error {
	if err := t.writeCertificates(); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	var clients, agents, serverHealth, agentHealth int
	if err := ports.Fill(&clients, &agents, &serverHealth, &agentHealth); err != nil {
		return err
	}
	t.clients = fmt.Sprintf("127.0.0.1:%d", clients)
	if err := t.run(ctx, "proxy-server", serverHealth,
		fmt.Sprint("--server-port=", clients), fmt.Sprint("--agent-port=", agents), fmt.Sprint("--health-port=", serverHealth), "--admin-port=0", "--graceful-shutdown-timeout=0s",
		"--server-cert="+t.file("server.crt"), "--server-key="+t.file("server.key"), "--server-ca-cert="+t.file("server.ca"),
		"--cluster-cert="+t.file("cluster.crt"), "--cluster-key="+t.file("cluster.key"), "--cluster-ca-cert="+t.file("cluster.ca")); err != nil {
		return err
	}
	return t.run(ctx, "proxy-agent", agentHealth, "--cluster-name="+t.name, "--kubeconfig="+kubeconfig,
		"--proxy-server-host=127.0.0.1", fmt.Sprint("--proxy-server-port=", agents),
		"--agent-identifiers="+identity.Identifiers(identity.Hosts(t.name, "")),
		"--agent-cert="+t.file("agent.crt"), "--agent-key="+t.file("agent.key"), "--ca-cert="+t.file("agent.ca"),
		"--handler-port=0", fmt.Sprint("--health-server-port=", agentHealth), "--admin-server-port=0", "--graceful-shutdown-timeout=0s", "--min-drain-duration=0s")
}

// ask runs the Go example, and returns what it says.
func (t *tunnel) ask(ctx context.Context, kubeconfig string) (string, error) {
	return t.demo.show(ctx, nil, filepath.Join(t.demo.dir, "tunnel-client"), "--proxy-server="+t.clients,
		"--ca="+t.file("client.ca"), "--cert="+t.file("client.crt"), "--key="+t.file("client.key"), "--cluster="+t.name, "--kubeconfig="+kubeconfig)
}

// run starts one of the binary's processes, and waits until it says that it is ready.
func (t *tunnel) run(ctx context.Context, name string, health int, args ...string) error {
	args = append([]string{name}, args...)
	fmt.Fprintf(t.demo.out, "$ %s &\n", t.demo.typed("cluster-proxy", args))
	logFile := t.file(name + ".log")
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(t.demo.dir, "cluster-proxy"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	t.processes = append(t.processes, cmd)
	ready := fmt.Sprintf("http://127.0.0.1:%d/readyz", health)
	err = wait.Poll{Every: 100 * time.Millisecond, For: time.Minute}.Try(ctx, func() error {
		_, err := plainhttp.Get(ctx, ready)
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for the %s: %w; its log ends with:\n%s", name, err, program.Tail(logFile))
	}
	return nil
}

// stop ends the processes, the agent first.
func (t *tunnel) stop() (err error) {
	for len(t.processes) > 0 {
		cmd := t.processes[len(t.processes)-1]
		t.processes = t.processes[:len(t.processes)-1]
		err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM))
		force := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // an error if it drains no longer than that
		force.Stop()
	}
	return err
}

// writeCertificates makes the two CAs that the addon manager would, and what they sign: each
// NAME.crt and NAME.key, and in NAME.ca whom its holder trusts.
func (t *tunnel) writeCertificates() error {
	hub, err := newCA("hub")
	if err != nil {
		return err
	}
	agents, err := newCA("agents")
	if err != nil {
		return err
	}
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	for name, of := range map[string]struct {
		issuer, trusts *pki.CA
		leaf           pki.Leaf
	}{
		"server":  {hub, hub, pki.Leaf{CommonName: string(identity.RolePeer), IPs: local, Server: true, Client: true}},
		"cluster": {hub, agents, pki.Leaf{CommonName: "proxy-server", IPs: local, Server: true}},
		"client":  {hub, hub, pki.Leaf{CommonName: string(identity.RoleClient), Client: true}},
		"agent": {agents, hub, pki.Leaf{CommonName: identity.AgentCommonName(t.name), Organizations: identity.AgentOrganizations(t.name),
			DNSNames: []string{identity.HandlerHost(t.name)}, Server: true, Client: true}},
	} {
		of.leaf.Validity = time.Hour
		pair, err := of.issuer.Issue(of.leaf, time.Now())
		if err != nil {
			return err
		}
		for file, content := range map[string][]byte{".crt": pair.CertPEM, ".key": pair.KeyPEM, ".ca": of.trusts.CertPEM()} {
			if err := os.WriteFile(t.file(name+file), content, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

func newCA(name string) (*pki.CA, error) {
	pair, err := pki.NewCA(name, time.Now(), time.Hour)
	if err != nil {
		return nil, err
	}
	return pki.ParseCA(pair)
}
