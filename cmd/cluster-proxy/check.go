package main

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// newCheckCommand is what helm test runs in a pod, and helm install if it is to wait.
func newCheckCommand() *cobra.Command {
	var server, ca, cert, key string
	var timeout, waiting time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Dial every managed cluster whose addon is Available, as a client on the hub",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, waiting+timeout)
			defer cancel()
			dialer, err := tunnel.FromFiles(server, ca, cert, key)
			if err != nil {
				return err
			}
			defer dialer.Close()
			list, err := newList()
			if err != nil {
				return err
			}
			return checkUntil(ctx, waiting, list, func(clusters []string) error { return check(ctx, cmd.OutOrStdout(), dialer, clusters) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&server, "proxy-server", "", "host:port of the proxy servers' client port")
	fs.StringVar(&ca, "proxy-ca-cert", "", "file with the hub CA")
	fs.StringVar(&cert, "proxy-cert", "", "file with the client certificate")
	fs.StringVar(&key, "proxy-key", "", "file with its key")
	fs.DurationVar(&timeout, "timeout", time.Minute, "how long all of it may take, apart from the time that is waited")
	fs.DurationVar(&waiting, "wait", 0, "how long to wait until the addon is Available on each of its clusters, and on one at least, and they can be dialed; after that those are dialed where it is")
	return cmd
}

// addons are the addon's clusters: those where it is Available, and how many others there are.
type addons struct {
	available []string
	others    int
}

// newList returns what lists them.
func newList() (func(context.Context) (addons, error), error) {
	config, err := flags.RESTConfig("", "")
	if err != nil {
		return nil, fmt.Errorf("finding the hub: %w", err)
	}
	client, err := addonclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (found addons, err error) {
		list, err := client.AddonV1alpha1().ManagedClusterAddOns(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + identity.AddonName})
		if err != nil {
			return found, fmt.Errorf("listing the addon's clusters: %w", err)
		}
		for _, addon := range list.Items {
			if meta.IsStatusConditionTrue(addon.Status.Conditions, "Available") {
				found.available = append(found.available, addon.Namespace)
			} else {
				found.others++
			}
		}
		return found, nil
	}, nil
}

// listInterval is how often the clusters are listed while they are waited for.
const listInterval = time.Second

// checkUntil dials the clusters where the addon is Available: once it is on all of its clusters, or when the time is over, and
// until then again if that fails. Agents may be Available before the Services of a new installation lead to its proxy servers, and
// the hub may not yet know the right to list. Without a time it lists and dials once.
func checkUntil(ctx context.Context, most time.Duration, list func(context.Context) (addons, error), check func(clusters []string) error) error {
	end := time.Now().Add(most)
	for {
		found, err := list(ctx)
		isOver := !time.Now().Before(end)
		isReady := err == nil && (isOver || found.others == 0 && len(found.available) > 0)
		if isReady {
			err = check(found.available)
		}
		if isOver || isReady && err == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return cmp.Or(err, ctx.Err())
		case <-time.After(listInterval):
		}
	}
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
