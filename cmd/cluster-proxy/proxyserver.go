package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"open-cluster-management.io/cluster-proxy/pkg/proxyserver"
)

func newProxyServerCommand() *cobra.Command {
	options := proxyserver.NewOptions()
	cmd := &cobra.Command{
		Use:   "proxy-server",
		Short: "Ends tunnels on the hub: agents on one port, clients on another",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := proxyserver.New(options)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			// The first signal drains, the second one kills.
			context.AfterFunc(ctx, stop)
			return server.Run(ctx)
		},
	}
	options.AddFlags(cmd.Flags())
	return cmd
}
