package kubectlplugin

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/diagnose"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/kubeconfig"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/pass"
)

// Run runs a command of the plugin and returns its exit status. The arguments are those after
// the program's name.
func Run(ctx context.Context, args []string, out, errOut io.Writer) (status int) {
	cmd := newCommand(out, errOut)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err != nil && err != cli.ErrNotGood { // what is wrong was said already
		fmt.Fprintln(cli.Terminal{Writer: errOut}, "error:", err)
	}
	return cli.ExitStatus(err)
}

func newCommand(out, errOut io.Writer) *cobra.Command {
	root, p := cli.NewRoot(out, errOut)
	addGroup(root, "Start:", diagnose.StatusCommand(p), kubeconfig.Command(p), viewsCommand(p), searchCommand(p), servicesCommand(p), whoamiCommand(p), policiesCommand(p))
	addGroup(root, "When something is wrong:", diagnose.CheckCommand(p), diagnose.TestCommand(p), diagnose.VersionCommand(p), diagnose.BundleCommand(p))
	addGroup(root, "More:", proxyCommand(p), pass.Command(p), replayCommand(p))
	root.SetHelpCommandGroupID("More:")
	return root
}

// addGroup adds commands below a heading.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
	}
	root.AddCommand(commands...)
}
