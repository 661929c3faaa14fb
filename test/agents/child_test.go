package agents

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// childEnv makes this program a process that holds agents and their target: a
// crowd has more files than one process may have open.
const childEnv = "CLUSTER_PROXY_AGENTS_CHILD"

// childSpec is the value of childEnv, as JSON.
type childSpec struct {
	Port     int    // of the proxy server
	Dir      string // of the certificates
	Clusters []string
	// Kubeconfig makes agents of clusters, not plain ones.
	Kubeconfig string
	// Backends makes a process without agents: what is around those of Kubeconfig, which are
	// a kube-apiserver, for which it writes Kubeconfig, and a load balancer.
	Backends []string
}

// childReport is what the child prints for each line that it reads.
type childReport struct {
	Port        int // of the target, or of the balancer
	Usage       usage
	Connections int
}

func runChild(raw string) int {
	var spec childSpec
	if err := json.Unmarshal([]byte(raw), &spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	target, err := listenTarget()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	port := target.port()
	if len(spec.Backends) > 0 {
		around, err := serveAround(spec.Backends, spec.Kubeconfig)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer around.close()
		port = around.port
	}
	var agents sync.WaitGroup
	for _, cluster := range spec.Clusters {
		o := agentOptions(pkitest.Files(filepath.Join(spec.Dir, "agent-"+cluster)), cluster, "agent", spec.Port)
		if spec.Kubeconfig != "" {
			clusterOptions(o, cluster, spec.Kubeconfig)
		}
		made, err := proxyagent.New(o)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		agents.Go(func() { _ = made.Run(ctx) })
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		used, err := measure()
		if lines.Text() != "" {
			err = errors.Join(err, writeProfiles(lines.Text()))
		}
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(childReport{port, used, target.connections()})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	cancel()
	agents.Wait()
	target.close()
	return 0
}

type child struct {
	t     testing.TB
	ask   func(profiles string) error
	lines *bufio.Scanner
}

// startChild runs agents in a process of their own until the test ends.
func (h *hub) startChild(clusters []string, port int) *child {
	h.t.Helper()
	return h.startChildOf(childSpec{Port: port, Dir: h.dir, Clusters: clusters})
}

func (h *hub) startChildOf(spec childSpec) *child {
	h.t.Helper()
	for _, cluster := range spec.Clusters {
		h.issueAgent(cluster)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		h.t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childEnv+"="+string(raw))
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = in.Close()
		if err := command.Wait(); err != nil {
			h.t.Errorf("the agents' process: %v", err)
		}
	})
	return &child{h.t, func(profiles string) error { _, err := fmt.Fprintln(in, profiles); return err }, bufio.NewScanner(out)}
}

func (c *child) report() childReport {
	c.t.Helper()
	return c.profile("")
}

// profile is report, and writes profiles whose names begin with prefix unless that is empty.
func (c *child) profile(prefix string) (r childReport) {
	c.t.Helper()
	if err := c.ask(prefix); err != nil {
		c.t.Fatal(err)
	}
	if !c.lines.Scan() {
		c.t.Fatalf("the agents' process ended: %v", c.lines.Err())
	}
	if err := json.Unmarshal(c.lines.Bytes(), &r); err != nil {
		c.t.Fatal(err)
	}
	return r
}
