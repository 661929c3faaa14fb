package pass

import (
	"fmt"
	"net/url"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/kubeconfig"
)

// fleetContext is the context of a pass that leads to all its clusters.
const fleetContext = "fleet"

// passContexts are the contexts of a pass. They have the way to the hub from the maker's
// kubeconfig, and nothing of the maker: the user has a token of its own, which is not there yet.
func passContexts(p *cli.Factory, pass string, options passOptions) (*kubeconfig.Contexts, error) {
	out, err := kubeconfig.New(p)
	if err != nil {
		return nil, err
	}
	out.AuthInfo, out.Namespace, out.ForOthers = pass, options.namespace, true
	out.Added.AuthInfos = map[string]*clientcmdapi.AuthInfo{pass: clientcmdapi.NewAuthInfo()}
	if options.view != "" {
		if err := out.Add(fleetContext, cli.ViewPath(options.view)); err != nil {
			return nil, err
		}
		out.Added.CurrentContext = fleetContext
	}
	for _, cluster := range options.clusters {
		if options.view != "" && cluster == fleetContext {
			return nil, fmt.Errorf("a cluster is called %q as the context for all clusters is: leave that out with --view=", cluster)
		}
		if err := out.Add(cluster, cli.GroupPath+"/"+cluster+"/"+v1alpha1.ProxySubresource); err != nil {
			return nil, err
		}
	}
	if len(options.clusters) > 0 && options.view == "" {
		out.Added.CurrentContext = options.clusters[0]
	}
	for _, cluster := range out.Added.Clusters {
		cluster.Extensions = nil
		if cluster.ProxyURL, err = withoutLogin(cluster.ProxyURL); err != nil {
			return nil, err
		}
	}
	if err := clientcmdapi.FlattenConfig(out.Added); err != nil {
		return nil, fmt.Errorf("reading what the kubeconfig refers to: %w", err)
	}
	return out, nil
}

// withoutLogin is an address without the maker's login there.
func withoutLogin(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("the proxy-url in the kubeconfig cannot be read") // the error has the address
	}
	u.User = nil
	return u.String(), nil
}
