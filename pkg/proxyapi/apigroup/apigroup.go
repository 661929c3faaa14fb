package apigroup

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	restclient "k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	generatedopenapi "open-cluster-management.io/cluster-proxy/pkg/apis/openapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// NewConfig is that of an API server without a store, a listener, or filters:
// ours are around it.
func NewConfig() *server.Config {
	config := server.NewConfig(scope.Codecs)
	config.ExternalAddress = "localhost:9092"
	config.LoopbackClientConfig = &restclient.Config{}
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.EnableProfiling, config.EnableMetrics, config.EnableIndex = false, false, false
	config.BuildHandlerChainFunc = func(handler http.Handler, _ *server.Config) http.Handler { return handler }
	namer := openapi.NewDefinitionNamer(scope.Scheme)
	config.OpenAPIConfig = server.DefaultOpenAPIConfig(generatedopenapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIConfig.Info.Title = "cluster-proxy"
	config.OpenAPIV3Config = server.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config.Info.Title = "cluster-proxy"
	return config
}

// NewGroup serves discovery, OpenAPI and the kinds of the aggregated API. Requests
// below clusters/<name>/proxy never come here: the subresource is only listed.
// Karmada's groups are there if k is not nil.
func NewGroup(config *server.Config, c *ClusterAPI, s *SessionStorage, k *scope.Karmada) (http.Handler, error) {
	config.Authorization.Authorizer = c.Authorizer // for an apply that creates
	generic, err := config.Complete(nil).New("proxy-api", server.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("preparing the aggregated API: %w", err)
	}
	group := server.NewDefaultAPIGroupInfo(v1alpha1.GroupVersion.Group, scope.Scheme, metav1.ParameterCodec, scope.Codecs)
	group.VersionedResourcesStorageMap[v1alpha1.GroupVersion.Version] = map[string]rest.Storage{
		v1alpha1.Resource: &clusterStorage{c},
		v1alpha1.Sessions: s,
		v1alpha1.Resource + "/" + v1alpha1.ProxySubresource:    &listed{v1alpha1.ProxySubresource, everyMethod, &v1alpha1.Cluster{}},
		v1alpha1.Resource + "/" + v1alpha1.StreamSubresource:   &listed{v1alpha1.StreamSubresource, []string{http.MethodPost}, &v1alpha1.Cluster{}},
		v1alpha1.Resource + "/" + v1alpha1.MetricsSubresource:  &listed{v1alpha1.MetricsSubresource, []string{http.MethodGet}, &v1alpha1.Cluster{}},
		v1alpha1.Resource + "/" + v1alpha1.TargetsSubresource:  &targetStorage{c},
		v1alpha1.Resource + "/" + v1alpha1.IdentitySubresource: &identityStorage{c},
	}
	if err := generic.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("preparing the aggregated API: %w", err)
	}
	if k != nil {
		if err := generic.InstallAPIGroups(groups(k, c)...); err != nil {
			return nil, fmt.Errorf("preparing Karmada's API: %w", err)
		}
	}
	generic.PrepareRun()
	return generic.Handler, nil
}

// groups are those of Karmada's API. Its resource proxying is not listed: nothing but its
// subresource proxy means something, which clients find in Karmada's documentation.
func groups(k *scope.Karmada, c *ClusterAPI) []*server.APIGroupInfo {
	clusters := server.NewDefaultAPIGroupInfo(karmadav1alpha1.ClusterGroupVersion.Group, scope.Scheme, metav1.ParameterCodec, scope.Codecs)
	clusters.VersionedResourcesStorageMap[karmadav1alpha1.ClusterGroupVersion.Version] = map[string]rest.Storage{
		karmadav1alpha1.Clusters:                                   &karmadaClusterStorage{c},
		karmadav1alpha1.Clusters + "/" + v1alpha1.ProxySubresource: &listed{v1alpha1.ProxySubresource, everyMethod, &karmadav1alpha1.Cluster{}},
	}
	search := server.NewDefaultAPIGroupInfo(karmadav1alpha1.SearchGroupVersion.Group, scope.Scheme, metav1.ParameterCodec, scope.Codecs)
	search.VersionedResourcesStorageMap[karmadav1alpha1.SearchGroupVersion.Version] = map[string]rest.Storage{
		karmadav1alpha1.Registries: &registryStorage{k.Store},
	}
	return []*server.APIGroupInfo{&clusters, &search}
}
