package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
)

// belowHub is the server of a context that the command kubeconfig has made.
var belowHub = regexp.MustCompile(`^(.*)` + regexp.QuoteMeta("/apis/"+v1alpha1.GroupVersion.String()) + `/(cluster|fleetview)s/([^/]+)/` + v1alpha1.ProxySubresource + `/?$`)

// splitServer is the hub's server, and which of its clusters or views a server leads to. The target
// is empty for a server that is the hub itself.
func splitServer(server string) (hub, target string) {
	parts := belowHub.FindStringSubmatch(server)
	if parts == nil {
		return server, ""
	}
	return parts[1], parts[2] + " " + parts[3]
}

// goOnWithHub is the hub's server. It says once that the context leads to something below it.
func (p *plugin) goOnWithHub(server string) (hub string) {
	hub, target := splitServer(server)
	if target != "" && !p.saidHub {
		p.saidHub = true
		fmt.Fprintf(p.err, "Your context leads to %s; this command asks its hub, %s\n", oneLine(target), oneLine(hub))
	}
	return hub
}

// serverOf is the URL that a client was made for.
func serverOf(client kubernetes.Interface) string {
	url := *client.Discovery().RESTClient().Get().URL()
	url.RawQuery = ""
	return strings.TrimSuffix(url.String(), "/")
}

// errNotServed is in the error of a server that is known not to be a hub with the addon.
var errNotServed = errors.New("does not serve")

// checkServed is an error if the server is known not to be a hub with the addon, or if that
// cannot be found out.
func checkServed(ctx context.Context, hub kubernetes.Interface) error {
	var resources metav1.APIResourceList
	err := get(ctx, hub, "/apis/"+v1alpha1.GroupVersion.String(), &resources)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %w %s: if your context leads to a managed cluster, name the hub's with --context; on a hub, the chart's values enableServiceProxy and proxyAPI.aggregatedAPI switch it on",
			serverOf(hub), errNotServed, v1alpha1.GroupVersion)
	case err != nil:
		return fmt.Errorf("asking %s whether it serves %s: %w", serverOf(hub), v1alpha1.GroupVersion, err)
	}
	return nil
}
