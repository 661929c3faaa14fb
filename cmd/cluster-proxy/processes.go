package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindexer"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver"
)

// newProcessCommands returns the subcommands that run until a signal.
func newProcessCommands() []*cobra.Command {
	return []*cobra.Command{
		newProcessCommand("addon-manager", "Install proxy servers on the hub and agents on managed clusters",
			addonmanager.NewOptions(), newAddonManager),
		newProcessCommand("proxy-server", "Terminate tunnels on the hub: agents on one port, clients on another",
			proxyserver.NewOptions(), proxyserver.New),
		newProcessCommand("proxy-api", "Serve the Kubernetes APIs of managed clusters on the hub, at https://<proxy-api>/<cluster>/",
			proxyapi.NewOptions(), proxyapi.New),
		newProcessCommand("proxy-agent", "Dial the hub from a managed cluster and open connections there",
			proxyagent.NewOptions(), proxyagent.New),
		newProcessCommand("fleet-index", "Keep the rows of all clusters' objects on the hub, in SQLite or PostgreSQL",
			fleetindexer.NewOptions(), fleetindexer.New),
	}
}

// options are the flags of a component.
type options interface{ AddFlags(*pflag.FlagSet) }

// component is what a process runs until ctx is done and its drain has ended.
type component interface {
	Run(ctx context.Context) error
}

// newProcessCommand returns the subcommand that makes a component of its flags
// and runs it. The first signal drains, the second one kills.
func newProcessCommand[O options, C component](use, short string, o O, construct func(O) (C, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := construct(o)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop)
			return c.Run(ctx)
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}

func newAddonManager(o *addonmanager.Options) (*addonmanager.Manager, error) {
	if err := hideBodies(); err != nil {
		return nil, err
	}
	o.CheckArgs = checkArgs
	return addonmanager.New(o)
}

// checkArgs returns why a proxy server or an agent would not start with arguments, of which the
// first is its name. It knows no flags of the log's.
func checkArgs(args []string) error {
	var o interface {
		options
		Validate() error
	} = proxyagent.NewOptions()
	if args[0] == "proxy-server" {
		o = proxyserver.NewOptions()
	}
	set := pflag.NewFlagSet(args[0], pflag.ContinueOnError)
	set.ParseErrorsAllowlist.UnknownFlags = true
	o.AddFlags(set)
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	return o.Validate()
}

// hideBodies keeps --v below 8, from which on client-go logs the bodies of all
// requests: the addon manager writes the keys of the CAs to Secrets.
func hideBodies() error {
	if !klog.V(8).Enabled() {
		return nil
	}
	_, err := logs.GlogSetter("7")
	return err
}
