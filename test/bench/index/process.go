package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindexer"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi"
	"open-cluster-management.io/cluster-proxy/test/bench/procfs"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// processEnv makes this program one of the processes that are measured, or the one that simulates; specEnv says which certificates,
// ports and files it has.
const processEnv, specEnv = "BENCH_INDEX_PROCESS", "BENCH_INDEX_SPEC"

// Processes.
const (
	theIndex, theAPI, theAgents = "index", "api", "agents"
)

// processSpec is what a process of ours is told.
type processSpec struct {
	Certs certs
	// Kubeconfig is of the hub, ProxyServer where agents are reached.
	Kubeconfig, ProxyServer string
	// Port and HealthPort are the process's own.
	Port, HealthPort int
	// Store is the index's file, and Index where the proxy API finds it.
	Store, Index string
}

// addresses are what the process of the agents says about itself.
type addresses struct{ ProxyServer, Orders string }

// runProcess runs this program as one of the processes. It ends with its input. A line of it collects garbage.
func runProcess(role string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	klog.EnableContextualLogging(true)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var said addresses
	switch role {
	case theAgents:
		var spec agentsSpec
		err := json.Unmarshal([]byte(os.Getenv(specEnv)), &spec)
		if err == nil {
			said.ProxyServer, said.Orders, err = serveAgents(ctx, spec)
		}
		if err != nil {
			return err
		}
	default:
		var spec processSpec
		if err := json.Unmarshal([]byte(os.Getenv(specEnv)), &spec); err != nil {
			return err
		}
		run, err := spec.program(role)
		if err != nil {
			return err
		}
		running.Go(func() {
			if err := run(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "error:", err)
				os.Exit(1)
			}
		})
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(said); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		debug.FreeOSMemory()
		if err := out.Encode(said); err != nil {
			return err
		}
	}
	return nil
}

// program is the index or the proxy API, with flags as the chart sets them.
func (s processSpec) program(role string) (func(context.Context) error, error) {
	own := s.Certs.files(map[string]string{theIndex: ofIndex, theAPI: ofAPI}[role], hubCA)
	agentCA := s.Certs.file(agentsCA + ".crt")
	if role == theIndex {
		o := fleetindexer.NewOptions()
		o.Store, o.Resources, o.Kubeconfig, o.ProxyServer = s.Store, indexed(), s.Kubeconfig, s.ProxyServer
		o.ProxyCert, o.ProxyKey, o.ProxyCACert, o.AgentCACert = own.Cert, own.Key, own.CA, agentCA
		o.BindAddress, o.Port, o.HealthBindAddress, o.HealthPort = "127.0.0.1", s.Port, "127.0.0.1", s.HealthPort
		made, err := fleetindexer.New(o)
		if err != nil {
			return nil, err
		}
		return made.Run, nil
	}
	serving := s.Certs.files(ofAPIServing, hubCA)
	o := proxyapi.NewOptions()
	o.Kubeconfig, o.ProxyServer, o.FleetIndex, o.Namespace = s.Kubeconfig, s.ProxyServer, s.Index, "addons"
	o.ProxyCert, o.ProxyKey, o.ProxyCACert, o.AgentCACert, o.ServerCert, o.ServerKey = own.Cert, own.Key, own.CA, agentCA, serving.Cert, serving.Key
	o.ServerBindAddress, o.ServerPort, o.HealthBindAddress, o.HealthPort = "127.0.0.1", s.Port, "127.0.0.1", s.HealthPort
	o.MinDrainDuration, o.GracefulShutdownTimeout = 0, time.Second
	made, err := proxyapi.New(o)
	if err != nil {
		return nil, err
	}
	return made.Run, nil
}

// process is one of them, seen from here.
type process struct {
	cmd *exec.Cmd
	log string
	in  io.WriteCloser
	out *json.Decoder
	// began is when it was started.
	began time.Time
}

// start starts a process. It writes its log to a folder.
func start(dir, role string, spec any) (p *process, said addresses, err error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, said, err
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, said, err
	}
	p = &process{cmd: exec.Command(executable), log: filepath.Join(dir, role+".log")}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, said, err
	}
	defer log.Close()
	p.cmd.Env = append(os.Environ(), processEnv+"="+role, specEnv+"="+string(text))
	p.cmd.Stderr = log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, said, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, said, err
	}
	p.out, p.began = json.NewDecoder(out), time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, said, err
	}
	if err := p.out.Decode(&said); err != nil {
		p.stop()
		return nil, said, fmt.Errorf("%s has ended, and its log ends with:\n%s", role, program.Tail(p.log))
	}
	return p, said, nil
}

// stop ends it, and waits until it has written what it knows.
func (p *process) stop() {
	_ = p.in.Close()
	timer := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	_ = p.cmd.Wait()
}

// resident returns the memory that it has of its own, in bytes, after it has collected its garbage.
func (p *process) resident() (float64, error) {
	if _, err := fmt.Fprintln(p.in); err != nil {
		return 0, err
	}
	if err := p.out.Decode(new(addresses)); err != nil {
		return 0, err
	}
	bytes, err := procfs.Anonymous(p.cmd.Process.Pid)
	return float64(bytes), err
}

// cpu returns the CPU time that it has used.
func (p *process) cpu() (time.Duration, error) { return procfs.CPU(p.cmd.Process.Pid) }
