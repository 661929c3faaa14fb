package agents

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
}

// childReport is what the child prints for each line that it reads.
type childReport struct {
	Port        int // of the target
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
	var agents sync.WaitGroup
	for _, cluster := range spec.Clusters {
		o := agentOptions(pkitest.Files(filepath.Join(spec.Dir, "agent-"+cluster)), cluster, "agent", spec.Port)
		made, err := proxyagent.New(o)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		agents.Go(func() { _ = made.Run(ctx) })
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		used, err := measure()
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(childReport{target.port(), used, target.connections()})
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
	ask   io.Writer
	lines *bufio.Scanner
}

// startChild runs agents in a process of their own until the test ends.
func (h *hub) startChild(clusters []string, port int) *child {
	h.t.Helper()
	for _, cluster := range clusters {
		h.issueAgent(cluster)
	}
	raw, err := json.Marshal(childSpec{Port: port, Dir: h.dir, Clusters: clusters})
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
	return &child{h.t, in, bufio.NewScanner(out)}
}

func (c *child) report() (r childReport) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.ask); err != nil {
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
