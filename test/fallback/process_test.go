package fallback

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	command := components.Command(name, args...)
	if subcommand, ok := strings.CutPrefix(name, "the first release's "); ok {
		command = exec.Command(firstReleaseBinary, append([]string{"proxy-" + subcommand}, args...)...)
	}
	return program.Start(t, strings.ReplaceAll(name, " ", "-"), command)
}

// firstRelease is the commit whose processes must work with today's (TestUpgrade of
// test/e2e has them in clusters). The only control sessions that it knows are streams.
const firstRelease = "8b83d547a664060d85e264ec15d782593719f17a"

// firstReleaseBinary is its cluster-proxy, once a test has built it.
var firstReleaseBinary string

func buildFirstRelease(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	const script = `git -C ../.. archive "$1" | tar -x -C "$2" && cd "$2" && go build -o cluster-proxy ./cmd/cluster-proxy`
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", script, "sh", firstRelease, dir).CombinedOutput(); err != nil {
		t.Fatalf("building the first release: %v: %s; a shallow clone lacks it: run git fetch --unshallow", err, out)
	}
	firstReleaseBinary = filepath.Join(dir, "cluster-proxy")
}
