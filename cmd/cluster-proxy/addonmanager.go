package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager"
)

// hideBodies keeps --v below 8, from which on client-go logs the bodies of all
// requests: the addon manager writes the keys of the CAs to Secrets.
func hideBodies() error {
	if !klog.V(8).Enabled() {
		return nil
	}
	_, err := logs.GlogSetter("7")
	return err
}

func newAddonManagerCommand() *cobra.Command {
	options := addonmanager.NewOptions()
	cmd := &cobra.Command{
		Use:   "addon-manager",
		Short: "Installs proxy servers on the hub and agents on managed clusters",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := hideBodies(); err != nil {
				return err
			}
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
