package main

import "github.com/spf13/cobra"

// TEMPORARY: the owner of pkg/proxyapi replaces this file.
func newProxyAPICommand() *cobra.Command {
	return &cobra.Command{Use: "proxy-api"}
}
