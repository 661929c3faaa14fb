package kubectlplugin

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

const (
	// listFlag is the addon manager's, which names the list.
	listFlag = "--exposed-services-configmap="
	// The parts of a URL that its user chooses.
	anyCluster, anyPort, anyScheme = "CLUSTER", "PORT", "https"
)

// exposed is an entry of the list, and how it is reached.
type exposed struct {
	agentapi.ExposedService
	// URL is what it is reached by with a token of the hub, and Connect the target of a
	// CONNECT request at the proxy API.
	URL     string `json:"url,omitempty"`
	Connect string `json:"connect,omitempty"`
}

func servicesCommand(p *cli.Factory) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "services [CLUSTER]",
		Short: "Show which Services of managed clusters may be reached, and by which URL",
		Long: `Show which Services of managed clusters may be reached, and by which URL. Of a cluster that is named, those that are exposed there.

The list is the chart's value exposedServices, in a ConfigMap of the addon's namespace on the hub, which you must be able to read. That a
Service is listed does not say that it is there: no cluster is asked. A caller also needs create on clusters/stream.`,
		Example:           "  kubectl clusterproxy services\n  kubectl clusterproxy services cluster1 -o json",
		Args:              cli.Arguments(0, 1),
		ValidArgsFunction: p.CompleteOneCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			return services(cmd.Context(), p, strings.Join(args, ""), output)
		},
	}
	cli.OutputFlag(cmd, &output)
	return cmd
}

func services(ctx context.Context, p *cli.Factory, cluster, output string) error {
	config, err := p.HubConfig()
	if err != nil {
		return err
	}
	hub, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	progress := p.StartProgress()
	progress.Doing("reading the list of exposed Services")
	list, err := exposedServices(ctx, p, hub, p.Overrides.Context.Namespace)
	if err == nil && cluster != "" {
		list, err = exposedOn(ctx, p, hub, list, cluster)
	}
	progress.Done()
	if err != nil {
		return err
	}
	found := make([]exposed, 0, len(list))
	for _, entry := range list {
		found = append(found, reachedBy(entry, strings.TrimSuffix(config.Host, "/"), cluster))
	}
	if printed, err := p.Print(output, cli.ListOf("ExposedServiceList", found)); printed {
		return err
	}
	return servicesTable(p, found, cluster)
}

// exposedServices reads the list. namespace is where it is, or empty if the configuration
// says so.
func exposedServices(ctx context.Context, p *cli.Factory, hub kubernetes.Interface, namespace string) (agentapi.ExposedServices, error) {
	var guessed error // why the namespace is not known
	if namespace == "" {
		namespace = cli.HubNamespace
		var configurations v1alpha1.ManagedProxyConfigurationList
		if guessed = cli.Get(ctx, hub, cli.ConfigurationsPath, &configurations); guessed == nil && len(configurations.Items) > 0 {
			namespace = cmp.Or(configurations.Items[0].Spec.ProxyServer.Namespace, namespace)
		}
	}
	name := agentapi.ExposedServicesConfigMap
	var manager appsv1.Deployment
	if err := cli.Get(ctx, hub, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+identity.AddonManager, &manager); err == nil {
		name = cmp.Or(argumentOf(&manager, listFlag), name)
	}
	var stored corev1.ConfigMap
	err := cli.Get(ctx, hub, "/api/v1/namespaces/"+namespace+"/configmaps/"+name, &stored)
	switch {
	case apierrors.IsNotFound(err):
		if err := cli.CheckServed(ctx, hub); err != nil {
			return nil, err
		}
		if guessed != nil {
			return nil, fmt.Errorf("namespace %q has no ConfigMap %q, and which one is the addon's is not known (%w): name it with --namespace", namespace, name, guessed)
		}
		return nil, nil
	case apierrors.IsForbidden(err):
		if err := cli.CheckServed(ctx, hub); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("you may not read the list (%w): ask an administrator of the hub to run: kubectl create role -n %s see-exposed-services --verb=get --resource=configmaps --resource-name=%s; kubectl create rolebinding -n %s see-exposed-services --role=see-exposed-services --user=%q",
			err, namespace, name, namespace, cli.RefusedUser(err))
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %q in namespace %q: %w", name, namespace, err)
	}
	list, leftOut, err := agentapi.ParseExposedServices(stored.Data)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %q in namespace %q has a mistake, so the list before it is in force: %w", name, namespace, err)
	}
	if leftOut != nil {
		fmt.Fprintf(p.Err, "ConfigMap %s in namespace %s: %s\n", name, namespace, cli.OneLine(leftOut.Error()))
	}
	return list, nil
}

// argumentOf is the value of a flag of a Deployment's process.
func argumentOf(d *appsv1.Deployment, flag string) (value string) {
	for _, container := range d.Spec.Template.Spec.Containers {
		for _, argument := range container.Args {
			if v, ok := strings.CutPrefix(argument, flag); ok {
				value = v
			}
		}
	}
	return value
}

// exposedOn are the entries that are about a cluster. If its ManagedClusterSet is not known,
// those that name sets are left out, and a line says so.
func exposedOn(ctx context.Context, p *cli.Factory, hub kubernetes.Interface, list agentapi.ExposedServices, cluster string) (agentapi.ExposedServices, error) {
	if _, err := cli.ListClusters(ctx, hub, []string{cluster}); err != nil {
		return nil, err
	}
	var managed metav1.PartialObjectMetadata
	if slices.ContainsFunc(list, func(e agentapi.ExposedService) bool { return len(e.ClusterSets) > 0 }) {
		if err := cli.Get(ctx, hub, "/apis/cluster.open-cluster-management.io/v1/managedclusters/"+cluster, &managed); err != nil {
			fmt.Fprintf(p.Err, "Services of ManagedClusterSets are left out, because the set of %s is not known: %s\n", cluster, cli.OneLine(err.Error()))
		}
	}
	return list.For(cluster, managed.Labels[clusterv1beta2.ClusterSetLabel]), nil
}

// reachedBy says how a Service of a cluster, or of any if it is empty, is reached.
func reachedBy(entry agentapi.ExposedService, hub, cluster string) exposed {
	cluster, port := cmp.Or(cluster, anyCluster), cmp.Or(entry.Port, anyPort)
	e := exposed{ExposedService: entry}
	if entry.Protocol != "tcp" {
		e.URL = fmt.Sprintf("%s%s/%s/%s/api/v1/namespaces/%s/services/%s:%s:%s/proxy-service/", hub, cli.GroupPath, url.PathEscape(cluster), clusterproxy.ProxySubresource,
			entry.Namespace, cmp.Or(entry.Protocol, anyScheme), entry.Service, port)
	}
	if entry.Protocol == "tcp" || entry.Protocol == "" {
		e.Connect = fmt.Sprintf("%s.%s.svc.%s:%s", entry.Service, entry.Namespace, cluster, port)
	}
	return e
}

func servicesTable(p *cli.Factory, found []exposed, cluster string) error {
	if len(found) == 0 {
		where := "any cluster"
		if cluster != "" {
			where = cluster
		}
		fmt.Fprintf(p.Err, "No Service of %s is exposed. The chart's value exposedServices lists them; docs/how-to/services.md has an example\n", cli.OneLine(where))
		return nil
	}
	t := cli.NewTable("Namespace", "Service", "Port", "Protocol", "Clusters", "Terms", "Reached By")
	byConnect := false
	for _, e := range found {
		where, terms := slices.Clone(e.Clusters), []string{}
		for _, set := range e.ClusterSets {
			where = append(where, "set "+set)
		}
		switch {
		case cluster != "":
			where = []string{cluster}
		case len(where) == 0:
			where = []string{"all"}
		}
		if e.ForwardAuthorization {
			terms = append(terms, "own login")
		}
		if e.Anonymous {
			terms = append(terms, "anonymous")
		}
		reached := e.URL
		if reached == "" {
			reached = "CONNECT " + e.Connect
		}
		byConnect = byConnect || e.Connect != ""
		t.Add(e.Namespace, e.Service, cmp.Or(e.Port, "any"), cmp.Or(e.Protocol, "any"), strings.Join(where, ","), strings.Join(terms, ","), reached)
	}
	if err := p.PrintTable(t, false); err != nil {
		return err
	}
	fmt.Fprintln(p.Err, "URLs take a token of the hub. Replace "+anyCluster+" and "+anyPort+", and https: by http: where the protocol is \"any\" and the Service has no TLS.")
	if byConnect {
		fmt.Fprintln(p.Err, "CONNECT SERVICE.NAMESPACE.svc.CLUSTER:PORT at the proxy API, with the token as the proxy's password, reaches those of protocol tcp and \"any\".")
	}
	return nil
}
