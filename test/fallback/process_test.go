package fallback

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	agentapp "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	agentoptions "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	serverapp "sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"

	"open-cluster-management.io/cluster-proxy/test/testkit/components"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// programs are what is combined.
var programs = map[string]components.Program{
	"our server": components.ProxyServer,
	"our agent":  components.ProxyAgent,
	"konnectivity's server": func() int {
		o := serveroptions.NewProxyRunOptions()
		return run(serverapp.NewProxyCommand(&serverapp.Proxy{}, o), o.Flags())
	},
	"konnectivity's agent": func() int {
		o := agentoptions.NewGrpcProxyAgentOptions()
		return run(agentapp.NewAgentCommand(&agentapp.Agent{}, o), o.Flags())
	},
}

// run runs a command as konnectivity's main functions do.
func run(c *cobra.Command, flags *pflag.FlagSet) int {
	c.Flags().AddFlagSet(flags)
	if err := c.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestMain(m *testing.M) { components.Main(m, programs) }

// start runs a program until the test ends.
func start(t *testing.T, name string, args ...string) *program.Program {
	t.Helper()
	return program.Start(t, strings.ReplaceAll(name, " ", "-"), components.Command(name, args...))
}
