package main

import "github.com/spf13/cobra"

// TEMPORARY: the owner of pkg/proxyserver replaces this file.
func newProxyServerCommand() *cobra.Command {
	return &cobra.Command{Use: "proxy-server"}
}
