package chain

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver"
)

// programEnv makes this program one of programs.
const programEnv = "CLUSTER_PROXY_CHAIN_PROGRAM"

var programs = map[string]func() *cobra.Command{
	"proxy-server": func() *cobra.Command {
		o := proxyserver.NewOptions()
		return command(o.AddFlags, func(ctx context.Context) error {
			made, err := proxyserver.New(o)
			if err != nil {
				return err
			}
			return made.Run(ctx)
		})
	},
	"proxy-agent": func() *cobra.Command {
		o := proxyagent.NewOptions()
		return command(o.AddFlags, func(ctx context.Context) error {
			made, err := proxyagent.New(o)
			if err != nil {
				return err
			}
			return made.Run(ctx)
		})
	},
	"proxy-api": func() *cobra.Command {
		o := proxyapi.NewOptions()
		return command(o.AddFlags, func(ctx context.Context) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return proxyapi.New(o).Run(ctx)
		})
	},
}

func command(flags func(*pflag.FlagSet), run func(context.Context) error) *cobra.Command {
	// As cmd/cluster-proxy has it.
	quiet := func(*cobra.Command, []string) { klog.EnableContextualLogging(true) }
	c := &cobra.Command{SilenceUsage: true, PersistentPreRun: quiet, RunE: func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM)
		defer stop()
		return run(ctx)
	}}
	flags(c.Flags())
	return c
}

func TestMain(m *testing.M) {
	if name := os.Getenv(programEnv); name != "" {
		os.Exit(cli.Run(programs[name]()))
	}
	os.Exit(m.Run())
}

// process is one that runs until the test ends, or is killed.
type process struct {
	t       *testing.T
	name    string
	command *exec.Cmd
	ended   chan struct{}

	mu      sync.Mutex
	log     bytes.Buffer
	written chan struct{} // holds a token when log grew
}

func startProcess(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, command: exec.Command(os.Args[0], args...), ended: make(chan struct{}), written: make(chan struct{}, 1)}
	p.command.Env = append(os.Environ(), programEnv+"="+name)
	p.command.Stdout, p.command.Stderr = p, p
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.command.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			out := p.output()
			t.Logf("%s:\n%s", name, out[max(0, len(out)-20_000):])
		}
	})
	return p
}

// Write is part of io.Writer.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.written <- struct{}{}:
	default:
	}
	return p.log.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// kill is SIGKILL.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

// says waits for output that matches a pattern, and returns its submatches.
func (p *process) says(pattern string) []string {
	p.t.Helper()
	limit := time.After(patience)
	for compiled := regexp.MustCompile(pattern); ; {
		if found := compiled.FindStringSubmatch(p.output()); found != nil {
			return found
		}
		select {
		case <-p.written:
		case <-p.ended:
			p.t.Fatalf("%s ended before it said %q", p.name, pattern)
		case <-limit:
			p.t.Fatalf("%s does not say %q", p.name, pattern)
		}
	}
}

// patience is long, since a machine may be busy with other tests.
const patience = 2 * time.Minute

func flag(name string, value any) string { return fmt.Sprintf("--%s=%v", name, value) }
