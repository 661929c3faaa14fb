package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// newCheckCommand is what helm test runs in a pod.
func newCheckCommand() *cobra.Command {
	var server, ca, cert, key string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Dial every managed cluster whose addon is Available, as a client on the hub",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			dialer, err := tunnel.FromFiles(server, ca, cert, key)
			if err != nil {
				return err
			}
			defer dialer.Close()
			clusters, err := availableClusters(ctx)
			if err != nil {
				return err
			}
			return check(ctx, cmd.OutOrStdout(), dialer, clusters)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&server, "proxy-server", "", "host:port of the proxy servers' client port")
	fs.StringVar(&ca, "proxy-ca-cert", "", "file with the hub CA")
	fs.StringVar(&cert, "proxy-cert", "", "file with the client certificate")
	fs.StringVar(&key, "proxy-key", "", "file with its key")
	fs.DurationVar(&timeout, "timeout", time.Minute, "how long all of it may take")
	return cmd
}

func availableClusters(ctx context.Context) ([]string, error) {
	config, err := flags.RESTConfig("", "")
	if err != nil {
		return nil, fmt.Errorf("finding the hub: %w", err)
	}
	client, err := addonclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	addons, err := client.AddonV1alpha1().ManagedClusterAddOns(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + identity.AddonName})
	if err != nil {
		return nil, fmt.Errorf("listing the addon's clusters: %w", err)
	}
	var clusters []string
	for _, addon := range addons.Items {
		for _, c := range addon.Status.Conditions {
			if c.Type == "Available" && c.Status == metav1.ConditionTrue {
				clusters = append(clusters, addon.Namespace)
			}
		}
	}
	return clusters, nil
}

// dialedAtOnce is how many clusters are dialed at the same time: those that do not answer
// take a dial's whole time.
const dialedAtOnce = 32

// check dials the agent's handler of each cluster, which every agent lets
// clients dial. That there is none is no success: nothing was tried.
func check(ctx context.Context, out io.Writer, dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}, clusters []string) error {
	fmt.Fprintf(out, "clusters whose addon is Available: %d\n", len(clusters))
	if len(clusters) == 0 {
		return errors.New("no cluster has the addon Available, so none was dialed: wait until kubectl get managedclusteraddons -A says True, and test again")
	}
	failed, took := make([]error, len(clusters)), make([]time.Duration, len(clusters))
	var group errgroup.Group
	group.SetLimit(dialedAtOnce)
	for i, cluster := range clusters {
		group.Go(func() error {
			began := time.Now()
			conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(identity.HandlerHost(cluster), identity.HandlerPort))
			if err != nil {
				failed[i] = fmt.Errorf("dialing cluster %q: %w", cluster, err)
				return nil
			}
			took[i] = time.Since(began)
			return conn.Close()
		})
	}
	_ = group.Wait() // what failed is in its own place
	for i, cluster := range clusters {
		if failed[i] == nil {
			fmt.Fprintf(out, "%s: reached in %s\n", cluster, took[i].Round(time.Millisecond))
		}
	}
	return errors.Join(failed...)
}
