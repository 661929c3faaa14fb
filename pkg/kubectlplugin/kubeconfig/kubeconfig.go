// Package kubeconfig makes contexts that lead through the hub to clusters and views: the
// command kubeconfig, and what passes need of it.
//
// A context has the way to the hub of the user's own: its address, authorities and
// credential, with what flags say instead. An entry of the user's kubeconfig that leads
// elsewhere is never replaced.
package kubeconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// options are the flags of the command kubeconfig.
type options struct {
	merge         bool
	prefix, fleet string
}

// Command returns the command kubeconfig.
func Command(p *cli.Factory) *cobra.Command {
	var o options
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
		ValidArgsFunction: p.CompleteClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeKubeconfig(cmd.Context(), p, args, o)
		},
	}
	cmd.SuggestFor = []string{"login", "contexts"}
	cmd.Flags().BoolVar(&o.merge, "merge", false, "add the contexts to your kubeconfig instead of printing one")
	cmd.Flags().StringVar(&o.prefix, "prefix", "", "what the names of contexts begin with, before the name of the cluster or of --fleet")
	cmd.Flags().StringVar(&o.fleet, "fleet", "fleet", "the context of view all, and what those of other views begin with; empty: no contexts of views")
	return cmd
}

func writeKubeconfig(ctx context.Context, p *cli.Factory, names []string, o options) error {
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	found, err := cli.ListClusters(ctx, hub, names)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return cli.ErrNoCluster
	}
	out, err := New(p)
	if err != nil {
		return err
	}
	out.merge = o.merge
	for _, cluster := range found {
		if err := out.Add(o.prefix+cluster.Name, cli.GroupPath+"/"+cluster.Name+"/"+v1alpha1.ProxySubresource); err != nil {
			return err
		}
	}
	if len(names) == 0 && o.fleet != "" {
		addViews(ctx, p, hub, out, o.prefix+o.fleet)
	}
	warnOfRights(ctx, p, hub, found)
	if o.merge {
		return merge(p, out)
	}
	out.Added.CurrentContext = o.prefix + found[0].Name
	if err := clientcmdapi.FlattenConfig(out.Added); err != nil {
		return fmt.Errorf("reading what the kubeconfig refers to: %w", err)
	}
	raw, err := clientcmd.Write(*out.Added)
	if err != nil {
		return err
	}
	_, err = p.Out.Write(raw)
	return err
}

// warnOfRights names the contexts that the hub's kube-apiserver would refuse: it knows no rights
// by ManagedClusterSet, and kubectl shows "Forbidden: unknown" of what it says.
func warnOfRights(ctx context.Context, p *cli.Factory, hub kubernetes.Interface, found []v1alpha1.Cluster) {
	may, err := cli.MayOnHub(ctx, hub, "get", v1alpha1.ProxySubresource, "")
	if may {
		return
	}
	refused := make([]bool, len(found))
	var group errgroup.Group
	group.SetLimit(cli.AskedAtOnce)
	for i, cluster := range found {
		group.Go(func() error {
			may, err := cli.MayOnHub(ctx, hub, "get", v1alpha1.ProxySubresource, cluster.Name)
			refused[i] = err == nil && !may
			return err
		})
	}
	if asked := group.Wait(); asked != nil || err != nil {
		fmt.Fprintf(p.Err, "which of the contexts you may use is not known: %s\n", cli.OneLine(cmp.Or(asked, err).Error()))
	}
	var names []string
	for i, cluster := range found {
		if refused[i] {
			names = append(names, cluster.Name)
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(p.Err, "the hub refuses you the contexts of these clusters: %s; ask an administrator of the hub for the right to get clusters/proxy with these names, or for ClusterRole cluster-proxy-user: a right by ManagedClusterSet holds for views and the proxy API only\n", cli.OneLine(cli.SomeOf(names)))
	}
}

// Contexts are the contexts that the command writes.
type Contexts struct {
	// user is the user's kubeconfig; current is the hub's context in it.
	user    *clientcmdapi.Config
	current string
	// hub is the way to the hub: that context's, with what flags say instead.
	hub     *clientcmdapi.Cluster
	hubName string
	// merge says that added becomes part of user.
	merge bool
	// Added is the kubeconfig of the contexts.
	Added *clientcmdapi.Config
	// ForOthers says that the contexts are for somebody else, whose kubeconfig has no others.
	ForOthers bool
	// AuthInfo and namespace are those of each context.
	AuthInfo, Namespace string
}

// New returns contexts, as yet none, with the way to the hub of the user's kubeconfig.
func New(p *cli.Factory) (*Contexts, error) {
	user, err := p.Loader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	current := user.CurrentContext
	if p.Overrides.CurrentContext != "" {
		current = p.Overrides.CurrentContext
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
	paths := append(clientcmd.GetClusterFileReferences(&p.Overrides.ClusterInfo), clientcmd.GetAuthInfoFileReferences(&p.Overrides.AuthInfo)...)
	if err := clientcmd.ResolvePaths(paths, here); err != nil {
		return nil, err
	}
	merged, err := clientcmd.NewNonInteractiveClientConfig(user, "", p.Overrides, p.Files).MergedRawConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	hub = merged.Contexts[current]
	server := *merged.Clusters[hub.Cluster]
	hubName := hub.Cluster
	if to, target := cli.SplitServer(server.Server); target != "" {
		server.Server, current, hubName = to, "", "" // what leads to a cluster is not the hub's entry
	}
	added := clientcmdapi.NewConfig()
	if info, ok := merged.AuthInfos[hub.AuthInfo]; ok && hub.AuthInfo != "" {
		added.AuthInfos[hub.AuthInfo] = info
	}
	return &Contexts{user: &user, current: current, hub: &server, hubName: hubName, Added: added, AuthInfo: hub.AuthInfo, Namespace: hub.Namespace}, nil
}

// Add makes a context out of the one for the hub, which leads to a path there. An entry
// of the same name in the user's kubeconfig that leads elsewhere has another owner, or
// another meaning for the user, and stays.
func (c *Contexts) Add(name, path string) error {
	if !c.ForOthers && (name == c.current || name == c.hubName) {
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
	c.Added.Clusters[name] = cluster
	c.Added.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: c.AuthInfo, Namespace: c.Namespace}
	return nil
}

// merge adds the contexts to the user's kubeconfig. One that is there keeps its namespace,
// which the user may have chosen since, unless --namespace names another one.
func merge(p *cli.Factory, c *Contexts) error {
	for name, cluster := range c.Added.Clusters {
		context := c.Added.Contexts[name]
		if old, ok := c.user.Contexts[name]; ok && p.Overrides.Context.Namespace == "" {
			context.Namespace = old.Namespace
		}
		c.user.Clusters[name], c.user.Contexts[name] = cluster, context
	}
	access := p.Loader().ConfigAccess()
	if err := clientcmd.ModifyConfig(access, *c.user, true); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	names := slices.Sorted(maps.Keys(c.Added.Contexts))
	fmt.Fprintf(p.Out, "added %s to %s: %s\nNext: kubectl --context %s get pods\n", cli.Count(len(names), "context"), access.GetDefaultFilename(), cli.SomeOf(names), names[0])
	return nil
}

// addViews makes a context for each view, beside those of clusters. A user who reaches
// clusters but no views gets the former, and one line that says why.
func addViews(ctx context.Context, p *cli.Factory, hub kubernetes.Interface, to *Contexts, fleet string) {
	found, err := cli.ListViews(ctx, hub, nil)
	none := "no contexts for views"
	if apierrors.IsForbidden(err) {
		// A user may have a right to this one by its name.
		if all, getErr := cli.ListViews(ctx, hub, []string{cli.ViewAll}); getErr == nil {
			found, none = all, fmt.Sprintf("no contexts for views but %q", cli.ViewAll)
		}
	}
	if err != nil {
		fmt.Fprintf(p.Err, "%s: %s\n", none, cli.OneLine(err.Error()))
	}
	for i := range found {
		addView(p, to, fleet, &found[i])
	}
}

func addView(p *cli.Factory, to *Contexts, fleet string, view *proxyv1alpha1.FleetView) {
	name := fleet
	if view.Name != cli.ViewAll {
		name += "-" + view.Name
	}
	err := fmt.Errorf("a cluster has the context %q", name)
	if to.Added.Contexts[name] == nil {
		err = to.Add(name, cli.ViewPath(view.Name))
	}
	if err != nil {
		fmt.Fprintf(p.Err, "no context for view %q: %s; or choose another name with --fleet\n", view.Name, cli.OneLine(err.Error()))
	}
}
