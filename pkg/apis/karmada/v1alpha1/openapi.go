package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	clusterModels = "io.karmada.cluster.v1alpha1."
	searchModels  = "io.karmada.search.v1alpha1."
)

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (Cluster) OpenAPIModelName() string { return clusterModels + "Cluster" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ClusterList) OpenAPIModelName() string { return clusterModels + "ClusterList" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ResourceRegistry) OpenAPIModelName() string { return searchModels + "ResourceRegistry" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ResourceRegistryList) OpenAPIModelName() string { return searchModels + "ResourceRegistryList" }

// OpenAPIDefinitions are the schemas of this package. kubectl apply reads them, and
// server-side apply needs every field.
func OpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	refTo := func(name string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Default: map[string]any{}, Ref: ref(name)}}
	}
	define := func(description, metadata string, properties map[string]spec.Schema, others ...string) common.OpenAPIDefinition {
		properties["kind"] = text("Kind of the object.")
		properties["apiVersion"] = text("Version of the schema of the object.")
		properties["metadata"] = refTo(metadata)
		return common.OpenAPIDefinition{Schema: object(description, properties), Dependencies: append(others, metadata)}
	}
	objectMeta, listMeta := metav1.ObjectMeta{}.OpenAPIModelName(), metav1.ListMeta{}.OpenAPIModelName()
	condition, selector := metav1.Condition{}.OpenAPIModelName(), metav1.LabelSelector{}.OpenAPIModelName()
	list := func(of string) common.OpenAPIDefinition {
		return define("A list of them.", listMeta, map[string]spec.Schema{"items": array("The objects.", refTo(of))}, of)
	}
	return map[string]common.OpenAPIDefinition{
		Cluster{}.OpenAPIModelName(): define("Cluster is a managed cluster.", objectMeta, map[string]spec.Schema{
			"spec": clusterSpec,
			"status": object("In which state the cluster is.", map[string]spec.Schema{
				"kubernetesVersion": text("Version of Kubernetes on the cluster."),
				"conditions":        array("Ready is whether the cluster is reachable.", refTo(condition)),
			}),
		}, condition),
		ClusterList{}.OpenAPIModelName(): list(Cluster{}.OpenAPIModelName()),
		ResourceRegistry{}.OpenAPIModelName(): define("ResourceRegistry says what of which clusters is below proxying/karmada/proxy.", objectMeta, map[string]spec.Schema{
			"spec": object("What of which clusters there is.", map[string]spec.Schema{
				"targetCluster":     targetCluster(refTo(selector)),
				"resourceSelectors": resourceSelectors,
				"backendStore":      backendStore,
			}, "targetCluster", "resourceSelectors"),
			"status": object("Whether the registry can be served.", map[string]spec.Schema{
				"conditions": array("Valid is False while the registry serves nothing.", refTo(condition)),
			}),
		}, condition, selector),
		ResourceRegistryList{}.OpenAPIModelName(): list(ResourceRegistry{}.OpenAPIModelName()),
	}
}

var clusterSpec = object("What the cluster is.", map[string]spec.Schema{
	"syncMode": text("Pull: the cluster's agent dials the hub."),
	"provider": text("ClusterClaim platform.open-cluster-management.io of the cluster."),
	"region":   text("ClusterClaim region.open-cluster-management.io of the cluster."),
}, "syncMode")

// targetCluster is the schema of a ClusterAffinity, whose labelSelector has the schema labels.
func targetCluster(labels spec.Schema) spec.Schema {
	return object("Selects clusters: those that all of its terms select.", map[string]spec.Schema{
		"labelSelector": labels,
		"fieldSelector": object("Selects by the fields provider and region.", map[string]spec.Schema{
			"matchExpressions": array("They must all be met.", object("A requirement.", map[string]spec.Schema{
				"key": text("provider or region."), "operator": text("In or NotIn."), "values": texts("Values of the field."),
			}, "key", "operator")),
		}),
		"clusterNames": texts("The clusters to select; empty means all."),
		"exclude":      texts("Clusters that are not selected."),
	})
}

var resourceSelectors = array("What there is of these clusters.", object("A kind.", map[string]spec.Schema{
	"apiVersion": text("Has the group. Every version of it is meant."), "kind": text("Kind of the objects."), "namespace": text("Namespace of the objects; empty means all."),
}, "apiVersion", "kind"))

var backendStore = object("Has no meaning here: nothing is cached.", map[string]spec.Schema{
	"openSearch": object("A store that nothing connects to.", map[string]spec.Schema{
		"addresses": texts("Addresses of the store."),
		"secretRef": object("Names a Secret that nothing reads.", map[string]spec.Schema{
			"namespace": text("Namespace of the Secret."), "name": text("Name of the Secret."),
		}, "namespace", "name"),
	}, "addresses", "secretRef"),
})

func text(description string) spec.Schema { return *spec.StringProperty().WithDescription(description) }

func texts(description string) spec.Schema { return array(description, *spec.StringProperty()) }

func array(description string, items spec.Schema) spec.Schema {
	return *spec.ArrayProperty(&items).WithDescription(description)
}

func object(description string, properties map[string]spec.Schema, required ...string) spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Description: description, Type: []string{"object"}, Properties: properties, Required: required}}
}
