package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
)

func newProxyAgentCommand() *cobra.Command {
	options := proxyagent.NewOptions()
	cmd := &cobra.Command{
		Use:   "proxy-agent",
		Short: "Dials the hub from a managed cluster and opens connections there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			agent, err := proxyagent.New(options)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			// The first signal drains, the second one kills.
			context.AfterFunc(ctx, stop)
			return agent.Run(ctx)
		},
	}
	options.AddFlags(cmd.Flags())
	return cmd
}
