package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager"
)

func newAddonManagerCommand() *cobra.Command {
	options := addonmanager.NewOptions()
	cmd := &cobra.Command{
		Use:   "addon-manager",
		Short: "Installs proxy servers on the hub and agents on managed clusters",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			manager, err := addonmanager.New(options)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return manager.Run(ctx)
		},
	}
	options.AddFlags(cmd.Flags())
	return cmd
}
