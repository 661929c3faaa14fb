package v1alpha1

// Names of the kinds in OpenAPI documents: this package has two of Karmada's groups.
const (
	clusterModels = "io.karmada.cluster.v1alpha1."
	searchModels  = "io.karmada.search.v1alpha1."
)

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (Cluster) OpenAPIModelName() string { return clusterModels + "Cluster" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ClusterSpec) OpenAPIModelName() string { return clusterModels + "ClusterSpec" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ClusterStatus) OpenAPIModelName() string { return clusterModels + "ClusterStatus" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ClusterList) OpenAPIModelName() string { return clusterModels + "ClusterList" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ResourceRegistry) OpenAPIModelName() string { return searchModels + "ResourceRegistry" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ResourceRegistryList) OpenAPIModelName() string { return searchModels + "ResourceRegistryList" }
