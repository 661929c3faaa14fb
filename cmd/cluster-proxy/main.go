// Command cluster-proxy holds the five processes of the addon, and the check
// that helm test runs. Each subcommand of the five parses flags into the options
// of one component and runs it until SIGTERM or SIGINT.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
)

func main() {
	log := newLineWriter(os.Stderr)
	if err := logTo(log); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	code := cli.Run(newCommand(log))
	log.flush()
	os.Exit(code)
}

func newCommand(log io.Writer) *cobra.Command {
	format := logText
	root := &cobra.Command{
		Use:           "cluster-proxy",
		Short:         "Reach Kubernetes clusters that cannot be dialed directly",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			// Requests of users say that they are not logged. cli.Run turns such wishes
			// off before it calls this.
			klog.EnableContextualLogging(true)
			if format == logJSON {
				logJSONTo(log)
			}
		},
	}
	root.PersistentFlags().Var(&format, "logging-format", "how the log is written: text, or json for one JSON object in each line")
	root.AddCommand(newProcessCommands()...)
	root.AddCommand(newCheckCommand())
	return root
}
