package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"open-cluster-management.io/cluster-proxy/pkg/proxyapi"
)

func newProxyAPICommand() *cobra.Command {
	options := proxyapi.NewOptions()
	cmd := &cobra.Command{
		Use:   "proxy-api",
		Short: "Serves the Kubernetes APIs of managed clusters on the hub, at https://<proxy-api>/<cluster>/",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.Validate(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			// The first signal drains, the second one kills.
			context.AfterFunc(ctx, stop)
			return proxyapi.New(options).Run(ctx)
		},
	}
	options.AddFlags(cmd.Flags())
	return cmd
}
