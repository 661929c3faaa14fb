// Package components makes a test's own binary run as one of our processes, so
// that tests can kill it, start it again and read its output without a build of
// cluster-proxy. Package program runs and watches the processes.
//
// A test package says in TestMain what its binary can be:
//
//	func TestMain(m *testing.M) {
//		components.Main(m, map[string]components.Program{"proxy-server": components.ProxyServer})
//	}
package components

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver"
)

// programEnv names the program that a test's binary is.
const programEnv = "CLUSTER_PROXY_TEST_PROGRAM"

// Program runs a process with the flags in os.Args, and returns its exit code.
type Program func() int

// Main runs the tests, or one of programs in a process that Command started. It
// does not return.
func Main(m *testing.M, programs map[string]Program) {
	if name := os.Getenv(programEnv); name != "" {
		os.Exit(programs[name]())
	}
	os.Exit(m.Run())
}

// Command is this binary as one of Main's programs.
func Command(name string, args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), programEnv+"="+name)
	return c
}

// ProxyServer is cluster-proxy proxy-server.
func ProxyServer() int {
	o := proxyserver.NewOptions()
	return run(o.AddFlags, func(ctx context.Context) error {
		made, err := proxyserver.New(o)
		if err != nil {
			return err
		}
		return made.Run(ctx)
	})
}

// ProxyAgent is cluster-proxy proxy-agent.
func ProxyAgent() int {
	o := proxyagent.NewOptions()
	return run(o.AddFlags, func(ctx context.Context) error {
		made, err := proxyagent.New(o)
		if err != nil {
			return err
		}
		return made.Run(ctx)
	})
}

// ProxyAPI is cluster-proxy proxy-api.
func ProxyAPI() int {
	o := proxyapi.NewOptions()
	return run(o.AddFlags, func(ctx context.Context) error {
		made, err := proxyapi.New(o)
		if err != nil {
			return err
		}
		return made.Run(ctx)
	})
}

// run runs a component until it ends or SIGTERM comes, with logs as
// cmd/cluster-proxy has them.
func run(flags func(*pflag.FlagSet), component func(context.Context) error) int {
	logs := func(*cobra.Command, []string) { klog.EnableContextualLogging(true) }
	c := &cobra.Command{SilenceUsage: true, PersistentPreRun: logs, RunE: func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM)
		defer stop()
		return component(ctx)
	}}
	flags(c.Flags())
	return cli.Run(c)
}
