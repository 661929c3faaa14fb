package main

import "github.com/spf13/cobra"

// TEMPORARY: the owner of pkg/addonmanager replaces this file.
func newAddonManagerCommand() *cobra.Command {
	return &cobra.Command{Use: "addon-manager"}
}
