package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// namespace is the addon's on the hub.
const namespace = "open-cluster-management-addon"

func installCommand(dir *string) *cobra.Command {
	var chart string
	var set []string
	c := &cobra.Command{Use: "install", Short: "Install the hub's chart in the lab", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		l, err := lab.Open(*dir)
		if err != nil {
			return err
		}
		if err := l.InstallChart(c.Context(), "cluster-proxy", namespace, chart, append(l.ChartValues(), set...)...); err != nil {
			return err
		}
		return wait.Poll{Every: time.Second, For: 3 * time.Minute}.Try(c.Context(), func() error {
			_, _, err := endpoints(l)
			return err
		})
	}}
	c.Flags().StringVar(&chart, "chart", "charts/cluster-proxy", "folder of the chart")
	c.Flags().StringArrayVar(&set, "set", nil, "value of the chart, KEY=VALUE, besides those that the lab needs")
	return c
}

func envCommand(dir *string) *cobra.Command {
	return &cobra.Command{Use: "env", Short: "Print the variables with which the scenarios of test/e2e run against the lab", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		l, err := lab.Open(*dir)
		if err != nil {
			return err
		}
		return env(c.OutOrStdout(), l)
	}}
}

// env prints a variable a line. None has a space, so that env(1) takes them.
func env(out io.Writer, l *lab.Lab) error {
	server, api, err := endpoints(l)
	if err != nil {
		return err
	}
	var managed []string
	for _, name := range slices.Sorted(maps.Keys(l.Managed)) {
		managed = append(managed, name+"="+l.Managed[name].KubeconfigPath)
	}
	kubectl, _ := l.Kubectl("hub")
	_, err = fmt.Fprintf(out, "E2E_HUB_KUBECONFIG=%s\nE2E_KUBECONFIGS=%s\nE2E_PROXY_SERVER=%s\nE2E_PROXY_API=%s\nE2E_KUBECTL=%s\n",
		l.Hub.KubeconfigPath, strings.Join(managed, ","), server, api, kubectl)
	return err
}

// endpoints are the addresses of the proxy server and of the proxy API.
func endpoints(l *lab.Lab) (server, api string, err error) {
	if server, err = l.ServiceAddress("hub", namespace, "proxy-entrypoint", 8090); err != nil {
		return "", "", err
	}
	api, err = l.ServiceAddress("hub", namespace, "cluster-proxy-addon-user", 9092)
	return server, api, err
}
