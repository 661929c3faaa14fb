package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// GroupPath is where the hub serves clusters.
var GroupPath = "/apis/" + v1alpha1.GroupVersion.String() + "/" + v1alpha1.Resource

// ManagedClustersPath is where OCM keeps what it knows of clusters.
const ManagedClustersPath = "/apis/cluster.open-cluster-management.io/v1/managedclusters"

// APIServicePath is where the hub keeps the one of the aggregated API.
var APIServicePath = "/apis/apiregistration.k8s.io/v1/apiservices/" + v1alpha1.GroupVersion.Version + "." + v1alpha1.GroupVersion.Group

// ConfigurationsPath is where the hub keeps the addon's configuration.
var ConfigurationsPath = "/apis/" + proxyv1alpha1.GroupVersion.String() + "/managedproxyconfigurations"

// AddonAPI is where the hub keeps addons.
const AddonAPI = "/apis/addon.open-cluster-management.io/v1alpha1"

// HubNamespace is the addon's namespace on the hub unless somebody chose another one.
const HubNamespace = "open-cluster-management-addon"

// Request is a GET of a path that may have a query. The path of the server's URL, if it has one,
// comes before it.
func Request(client kubernetes.Interface, path string) (*rest.Request, error) {
	path, query, _ := strings.Cut(path, "?")
	request := client.Discovery().RESTClient().Get().AbsPath(path)
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("parsing the query %q: %w", query, err)
	}
	for name := range values {
		request.Param(name, values.Get(name))
	}
	return request, nil
}

// Get asks the hub for a JSON object, at a path that may have a query.
func Get(ctx context.Context, hub kubernetes.Interface, path string, into any) error {
	request, err := Request(hub, path)
	if err != nil {
		return err
	}
	return Answer(ctx, request, path, into)
}

// Answer reads the hub's answer to a request, which is a JSON object.
func Answer(ctx context.Context, request *rest.Request, path string, into any) error {
	raw, err := request.SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		// client-go has words of its own for some codes; ours say more.
		var status metav1.Status
		if json.Unmarshal(raw, &status) == nil && status.Kind == "Status" && status.Message != "" {
			status.Message = OneLine(status.Message)
			return &apierrors.StatusError{ErrStatus: status}
		}
		var other *apierrors.StatusError
		if errors.As(err, &other) {
			other.ErrStatus.Message = OneLine(other.ErrStatus.Message)
		}
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("reading the hub's answer to %s: %w", path, err)
	}
	return nil
}

// IsMissing tells an object that is not there from a kind that the hub does not know.
// The message about the latter names no object.
func IsMissing(err error, name string) bool {
	var status *apierrors.StatusError
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.ErrStatus.Details != nil && status.ErrStatus.Details.Name == name
}

// ErrNotServed is in the error of a server that is known not to be a hub with the addon.
var ErrNotServed = errors.New("does not serve")

// CheckServed is an error if the server is known not to be a hub with the addon, or if that
// cannot be found out.
func CheckServed(ctx context.Context, hub kubernetes.Interface) error {
	var resources metav1.APIResourceList
	err := Get(ctx, hub, "/apis/"+v1alpha1.GroupVersion.String(), &resources)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %w %s: if your context leads to a managed cluster, name the hub's with --context; on a hub, the chart's values enableServiceProxy and proxyAPI.aggregatedAPI switch it on",
			serverOf(hub), ErrNotServed, v1alpha1.GroupVersion)
	case err != nil:
		return fmt.Errorf("asking %s whether it serves %s: %w", serverOf(hub), v1alpha1.GroupVersion, err)
	}
	return nil
}

// serverOf is the URL that a client was made for.
func serverOf(client kubernetes.Interface) string {
	url := *client.Discovery().RESTClient().Get().URL()
	url.RawQuery = ""
	return strings.TrimSuffix(url.String(), "/")
}
