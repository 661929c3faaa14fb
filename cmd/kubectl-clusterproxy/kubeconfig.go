package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
)

func (p *plugin) kubeconfigCommand() *cobra.Command {
	var merge bool
	var prefix string
	cmd := &cobra.Command{
		Use:   "kubeconfig [CLUSTER...]",
		Short: "Write a kubeconfig with a context for each cluster, for kubectl, helm, k9s and others",
		Long: `Write a kubeconfig with a context for each cluster, all that you may reach if none is named.
The user of each context is the one of your context for the hub, and so is the server, with the
cluster's path behind it: nothing else than the hub need be reachable.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.kubeconfig(cmd.Context(), args, prefix, merge)
		},
	}
	cmd.Flags().BoolVar(&merge, "merge", false, "add the contexts to your kubeconfig instead of printing one")
	cmd.Flags().StringVar(&prefix, "prefix", "", "what the names of contexts begin with, before the cluster's name")
	return cmd
}

func (p *plugin) kubeconfig(ctx context.Context, names []string, prefix string, merge bool) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	found, err := clusters(ctx, hub, names)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("there is no cluster that you may reach; see: kubectl auth can-i get clusters.clusterproxy.open-cluster-management.io/proxy")
	}
	raw, err := p.loader().RawConfig()
	if err != nil {
		return fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	current := raw.CurrentContext
	if p.overrides.CurrentContext != "" {
		current = p.overrides.CurrentContext
	}
	added, err := contexts(&raw, current, prefix, found)
	if err != nil {
		return err
	}
	if merge {
		return p.merge(&raw, added)
	}
	added.CurrentContext = prefix + found[0].Name
	if err := clientcmdapi.FlattenConfig(added); err != nil {
		return fmt.Errorf("reading what the kubeconfig refers to: %w", err)
	}
	out, err := clientcmd.Write(*added)
	if err != nil {
		return err
	}
	_, err = p.out.Write(out)
	return err
}

// contexts makes a context for each cluster out of the one for the hub.
func contexts(raw *clientcmdapi.Config, current, prefix string, found []v1alpha1.Cluster) (*clientcmdapi.Config, error) {
	hubContext, ok := raw.Contexts[current]
	if !ok {
		return nil, fmt.Errorf("there is no context %q in the kubeconfig: name the hub's with --context", current)
	}
	hubCluster, ok := raw.Clusters[hubContext.Cluster]
	if !ok {
		return nil, fmt.Errorf("context %q of the kubeconfig has no cluster", current)
	}
	out := clientcmdapi.NewConfig()
	if user, ok := raw.AuthInfos[hubContext.AuthInfo]; ok {
		out.AuthInfos[hubContext.AuthInfo] = user
	}
	for _, cluster := range found {
		name := prefix + cluster.Name
		if raw.Contexts[current] == raw.Contexts[name] || name == hubContext.Cluster {
			return nil, fmt.Errorf("%q is the hub's own entry in the kubeconfig: choose a --prefix", name)
		}
		entry := hubCluster.DeepCopy()
		entry.Server = strings.TrimSuffix(hubCluster.Server, "/") + groupPath + "/" + cluster.Name + "/" + v1alpha1.ProxySubresource
		out.Clusters[name] = entry
		out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: hubContext.AuthInfo, Namespace: hubContext.Namespace}
	}
	return out, nil
}

// merge adds entries to the user's kubeconfig. One of the same name that leads
// elsewhere has another owner and stays.
func (p *plugin) merge(raw, added *clientcmdapi.Config) error {
	for name, entry := range added.Clusters {
		if old, ok := raw.Clusters[name]; ok && old.Server != entry.Server {
			return fmt.Errorf("the kubeconfig has a cluster %q that leads to %s: choose a --prefix", name, old.Server)
		}
		if old, ok := raw.Contexts[name]; ok && old.Cluster != name {
			return fmt.Errorf("the kubeconfig has a context %q for cluster %q: choose a --prefix", name, old.Cluster)
		}
		raw.Clusters[name], raw.Contexts[name] = entry, added.Contexts[name]
	}
	access := p.loader().ConfigAccess()
	if err := clientcmd.ModifyConfig(access, *raw, true); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	fmt.Fprintf(p.out, "added %d contexts to %s\n", len(added.Contexts), access.GetDefaultFilename())
	return nil
}
