package fallback

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	agentapp "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	agentoptions "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	serverapp "sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// programEnv makes this program one of those below.
const programEnv = "CLUSTER_PROXY_FALLBACK_PROGRAM"

// programs are what is combined.
var programs = map[string]func() *cobra.Command{
	"our server": func() *cobra.Command {
		o := proxyserver.NewOptions()
		return command(o.AddFlags, func(ctx context.Context) error {
			made, err := proxyserver.New(o)
			if err != nil {
				return err
			}
			return made.Run(ctx)
		})
	},
	"our agent": func() *cobra.Command {
		o := proxyagent.NewOptions()
		return command(o.AddFlags, func(ctx context.Context) error {
			made, err := proxyagent.New(o)
			if err != nil {
				return err
			}
			return made.Run(ctx)
		})
	},
	"konnectivity's server": func() *cobra.Command {
		o := serveroptions.NewProxyRunOptions()
		c := serverapp.NewProxyCommand(&serverapp.Proxy{}, o)
		c.Flags().AddFlagSet(o.Flags())
		return c
	},
	"konnectivity's agent": func() *cobra.Command {
		o := agentoptions.NewGrpcProxyAgentOptions()
		c := agentapp.NewAgentCommand(&agentapp.Agent{}, o)
		c.Flags().AddFlagSet(o.Flags())
		return c
	},
}

func command(flags func(*pflag.FlagSet), run func(context.Context) error) *cobra.Command {
	c := &cobra.Command{RunE: func(*cobra.Command, []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return run(ctx)
	}}
	flags(c.Flags())
	return c
}

func TestMain(m *testing.M) {
	name := os.Getenv(programEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := programs[name]().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// start runs a program until the test ends.
func start(t *testing.T, name string, args ...string) *program.Program {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), programEnv+"="+name)
	return program.Start(t, strings.ReplaceAll(name, " ", "-"), c)
}
