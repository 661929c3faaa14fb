package main

import "github.com/spf13/cobra"

// TEMPORARY: the owner of pkg/proxyagent replaces this file.
func newProxyAgentCommand() *cobra.Command {
	return &cobra.Command{Use: "proxy-agent"}
}
