package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// childEnv makes this program one of those that simulate: it is "agents" or "balancer". One
// process could not have all their files open.
const childEnv = "CLUSTER_PROXY_SCALE_CHILD"

// childSpec is what a process is told on its command line, as JSON.
type childSpec struct {
	Dir string `json:"dir"`
	// Addresses are the loopback addresses between agents and balancer: there are not enough
	// ports for all connections between two addresses.
	Addresses []string `json:"addresses"`
	Port      int      `json:"port"` // at which the balancer listens
}

// request is a line that a process reads, and report the line that it answers.
type (
	request struct {
		Start    []agentSpec `json:"start,omitempty"`
		Backends []string    `json:"backends,omitempty"`
		Cut      bool        `json:"cut,omitempty"` // all connections
	}
	report struct {
		Metrics string `json:"metrics"` // where it serves them
		// Leased are the clusters whose addon's Lease was renewed for the first time.
		Leased []string `json:"leased,omitempty"`
		Error  string   `json:"error,omitempty"`
	}
)

// agentSpec is one agent, as its ManifestWork has it.
type agentSpec struct {
	Cluster string   `json:"cluster"`
	Dir     string   `json:"dir"` // of its volumes
	Args    []string `json:"args"`
}

// runChild is the main function of such a process. It ends with its standard input.
func runChild(kind string) error {
	var spec childSpec
	if err := json.Unmarshal([]byte(os.Args[1]), &spec); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var handle func(request) (report, error)
	var err error
	switch kind {
	case "agents":
		handle, err = serveAgents(ctx, spec)
	case "balancer":
		handle, err = serveBalancer(ctx, spec)
	default:
		err = fmt.Errorf("%s=%q is neither agents nor balancer", childEnv, kind)
	}
	if err != nil {
		return err
	}
	metrics, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	http.Handle("/metrics", promhttp.Handler())
	server := &http.Server{ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(metrics) }()
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		answer, err := handle(r)
		answer.Metrics = metrics.Addr().String()
		if err != nil {
			answer.Error = err.Error()
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}

// child is such a process, seen from here.
type child struct {
	name    string
	metrics string
	spec    childSpec

	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startChild starts one. It ends with ctx, or with this process.
func startChild(ctx context.Context, kind, name string, spec childSpec) (*child, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(spec.Dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := &child{name: name, spec: spec, cmd: exec.CommandContext(ctx, program, string(raw))}
	c.cmd.Env = append(os.Environ(), childEnv+"="+kind)
	c.cmd.Stderr = log
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(bufio.NewReader(out))
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	answer, err := c.ask(request{})
	if err != nil {
		return nil, err
	}
	c.metrics = answer.Metrics
	return c, nil
}

func (c *child) ask(r request) (answer report, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = json.NewEncoder(c.in).Encode(r); err == nil {
		err = c.out.Decode(&answer)
	}
	if err != nil {
		return answer, fmt.Errorf("%s has ended, and its log is %s: %w", c.name, filepath.Join(c.spec.Dir, c.name+".log"), err)
	}
	if answer.Error != "" {
		return answer, fmt.Errorf("%s: %s", c.name, answer.Error)
	}
	return answer, nil
}

func (c *child) stop() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}
