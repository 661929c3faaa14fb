package kubectlplugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
)

// kubeconfigOptions are the flags of the command kubeconfig.
type kubeconfigOptions struct {
	merge         bool
	prefix, fleet string
}

func (p *plugin) kubeconfigCommand() *cobra.Command {
	var options kubeconfigOptions
	cmd := &cobra.Command{
		Use:   "kubeconfig [CLUSTER...]",
		Short: "Write a kubeconfig with a context for each cluster and view, for kubectl, helm, k9s and others",
		Long: `Write a kubeconfig with a context for each cluster, all that you may reach if none is named.
The user of each context is the one of your context for the hub, and so is the server, with the
cluster's path behind it: nothing else than the hub need be reachable.

If no cluster is named, each FleetView gets a context too, which leads to all its clusters at once:
"fleet" for view all, "fleet-VIEW" for every other. --fleet chooses another name than "fleet"; with
--fleet= there are none. Contexts of clusters come first: if a cluster is called "fleet" or
"fleet-VIEW", that name is its context, the view gets none, and a line on standard error says so.

An entry of your kubeconfig that leads elsewhere is never replaced: for a cluster the command then
fails, and a view gets no context. A kubeconfig that is printed has your credential in it.`,
		Example:           "  kubectl clusterproxy kubeconfig --merge\n  kubectl clusterproxy kubeconfig cluster1 > cluster1.kubeconfig",
		ValidArgsFunction: p.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.kubeconfig(cmd.Context(), args, options)
		},
	}
	cmd.SuggestFor = []string{"login", "contexts"}
	cmd.Flags().BoolVar(&options.merge, "merge", false, "add the contexts to your kubeconfig instead of printing one")
	cmd.Flags().StringVar(&options.prefix, "prefix", "", "what the names of contexts begin with, before the name of the cluster or of --fleet")
	cmd.Flags().StringVar(&options.fleet, "fleet", "fleet", "the context of view all, and what those of other views begin with; empty: no contexts of views")
	return cmd
}

func (p *plugin) kubeconfig(ctx context.Context, names []string, options kubeconfigOptions) error {
	hub, err := p.hub()
	if err != nil {
		return err
	}
	found, err := clusters(ctx, hub, names)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errNoCluster
	}
	out, err := p.newContexts(options)
	if err != nil {
		return err
	}
	for _, cluster := range found {
		if err := out.add(options.prefix+cluster.Name, groupPath+"/"+cluster.Name+"/"+v1alpha1.ProxySubresource); err != nil {
			return err
		}
	}
	if len(names) == 0 && options.fleet != "" {
		p.addViews(ctx, hub, out, options.prefix+options.fleet)
	}
	p.warnOfRights(ctx, hub, found)
	if options.merge {
		return p.merge(out)
	}
	out.added.CurrentContext = options.prefix + found[0].Name
	if err := clientcmdapi.FlattenConfig(out.added); err != nil {
		return fmt.Errorf("reading what the kubeconfig refers to: %w", err)
	}
	raw, err := clientcmd.Write(*out.added)
	if err != nil {
		return err
	}
	_, err = p.out.Write(raw)
	return err
}

// warnOfRights names the contexts that the hub's kube-apiserver would refuse: it knows no rights
// by ManagedClusterSet, and kubectl shows "Forbidden: unknown" of what it says.
func (p *plugin) warnOfRights(ctx context.Context, hub kubernetes.Interface, found []v1alpha1.Cluster) {
	may, err := mayOnHub(ctx, hub, "get", v1alpha1.ProxySubresource, "")
	if may {
		return
	}
	refused := make([]bool, len(found))
	var group errgroup.Group
	group.SetLimit(checkedAtOnce)
	for i, cluster := range found {
		group.Go(func() error {
			may, err := mayOnHub(ctx, hub, "get", v1alpha1.ProxySubresource, cluster.Name)
			refused[i] = err == nil && !may
			return err
		})
	}
	if asked := group.Wait(); asked != nil || err != nil {
		fmt.Fprintf(p.err, "which of the contexts you may use is not known: %s\n", oneLine(cmp.Or(asked, err).Error()))
	}
	var names []string
	for i, cluster := range found {
		if refused[i] {
			names = append(names, cluster.Name)
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(p.err, "the hub refuses you the contexts of these clusters: %s; ask an administrator of the hub for the right to get clusters/proxy with these names, or for ClusterRole cluster-proxy-user: a right by ManagedClusterSet holds for views and the proxy API only\n", oneLine(someOf(names)))
	}
}

// contexts are the contexts that the command writes.
type contexts struct {
	// user is the user's kubeconfig; current is the hub's context in it.
	user    *clientcmdapi.Config
	current string
	// hub is the way to the hub: that context's, with what flags say instead.
	hub     *clientcmdapi.Cluster
	hubName string
	// merge says that added becomes part of user.
	merge bool
	added *clientcmdapi.Config
	// forOthers says that the contexts are for somebody else, whose kubeconfig has no others.
	forOthers bool
	// authInfo and namespace are those of each context.
	authInfo, namespace string
}

func (p *plugin) newContexts(options kubeconfigOptions) (*contexts, error) {
	user, err := p.loader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	current := user.CurrentContext
	if p.overrides.CurrentContext != "" {
		current = p.overrides.CurrentContext
	}
	hub, ok := user.Contexts[current]
	if !ok {
		return nil, fmt.Errorf("there is no context %q in the kubeconfig: name the hub's with --context", current)
	}
	if _, ok := user.Clusters[hub.Cluster]; !ok {
		return nil, fmt.Errorf("context %q of the kubeconfig has no cluster", current)
	}
	// The clusters were listed with the flags, which may lead to another hub. A path in a flag is
	// relative to the working directory, and one in a kubeconfig to the kubeconfig's.
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	paths := append(clientcmd.GetClusterFileReferences(&p.overrides.ClusterInfo), clientcmd.GetAuthInfoFileReferences(&p.overrides.AuthInfo)...)
	if err := clientcmd.ResolvePaths(paths, here); err != nil {
		return nil, err
	}
	merged, err := clientcmd.NewNonInteractiveClientConfig(user, "", p.overrides, p.files).MergedRawConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	hub = merged.Contexts[current]
	server := *merged.Clusters[hub.Cluster]
	hubName := hub.Cluster
	if to, target := splitServer(server.Server); target != "" {
		server.Server, current, hubName = to, "", "" // what leads to a cluster is not the hub's entry
	}
	added := clientcmdapi.NewConfig()
	if info, ok := merged.AuthInfos[hub.AuthInfo]; ok && hub.AuthInfo != "" {
		added.AuthInfos[hub.AuthInfo] = info
	}
	return &contexts{user: &user, current: current, hub: &server, hubName: hubName, merge: options.merge, added: added, authInfo: hub.AuthInfo, namespace: hub.Namespace}, nil
}

// add makes a context out of the one for the hub, which leads to a path there. An entry
// of the same name in the user's kubeconfig that leads elsewhere has another owner, or
// another meaning for the user, and stays.
func (c *contexts) add(name, path string) error {
	if !c.forOthers && (name == c.current || name == c.hubName) {
		return fmt.Errorf("%q is the hub's own entry in the kubeconfig: choose a --prefix", name)
	}
	cluster := c.hub.DeepCopy()
	cluster.Server = strings.TrimSuffix(cluster.Server, "/") + path
	if c.merge {
		if old, ok := c.user.Clusters[name]; ok && old.Server != cluster.Server {
			return fmt.Errorf("the kubeconfig has a cluster %q that leads to %s: choose a --prefix, or run kubectl config delete-cluster", name, old.Server)
		}
		if old, ok := c.user.Contexts[name]; ok && old.Cluster != name {
			return fmt.Errorf("the kubeconfig has a context %q for cluster %q: choose a --prefix, or run kubectl config delete-context", name, old.Cluster)
		}
	}
	c.added.Clusters[name] = cluster
	c.added.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: c.authInfo, Namespace: c.namespace}
	return nil
}

// merge adds the contexts to the user's kubeconfig. One that is there keeps its namespace,
// which the user may have chosen since, unless --namespace names another one.
func (p *plugin) merge(c *contexts) error {
	for name, cluster := range c.added.Clusters {
		context := c.added.Contexts[name]
		if old, ok := c.user.Contexts[name]; ok && p.overrides.Context.Namespace == "" {
			context.Namespace = old.Namespace
		}
		c.user.Clusters[name], c.user.Contexts[name] = cluster, context
	}
	access := p.loader().ConfigAccess()
	if err := clientcmd.ModifyConfig(access, *c.user, true); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	names := slices.Sorted(maps.Keys(c.added.Contexts))
	fmt.Fprintf(p.out, "added %s to %s: %s\nNext: kubectl --context %s get pods\n", count(len(names), "context"), access.GetDefaultFilename(), someOf(names), names[0])
	return nil
}
