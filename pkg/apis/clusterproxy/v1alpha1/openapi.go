package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const modelPrefix = "io.open-cluster-management.clusterproxy.v1alpha1."

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (Cluster) OpenAPIModelName() string { return modelPrefix + "Cluster" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ClusterStatus) OpenAPIModelName() string { return modelPrefix + "ClusterStatus" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ClusterList) OpenAPIModelName() string { return modelPrefix + "ClusterList" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (ClusterIdentity) OpenAPIModelName() string { return modelPrefix + "ClusterIdentity" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (UserInfo) OpenAPIModelName() string { return modelPrefix + "UserInfo" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (Session) OpenAPIModelName() string { return modelPrefix + "Session" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (SessionStatus) OpenAPIModelName() string { return modelPrefix + "SessionStatus" }

// OpenAPIModelName is the kind's name in OpenAPI documents.
func (SessionList) OpenAPIModelName() string { return modelPrefix + "SessionList" }

// OpenAPIDefinitions are the schemas of this package, each with the names of the
// others that it refers to. Descriptions are those
// that kubectl explain shows.
func OpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	refTo := func(description, name string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Description: description, Default: map[string]any{}, Ref: ref(name)}}
	}
	kind := func(description string, metadata, part string, properties map[string]spec.Schema, required ...string) common.OpenAPIDefinition {
		properties["kind"] = text("Kind of the object.")
		properties["apiVersion"] = text("Version of the schema of the object.")
		properties["metadata"] = refTo("Standard metadata.", metadata)
		return object(description, properties, []string{metadata, part}, required...)
	}
	objectMeta, listMeta := metav1.ObjectMeta{}.OpenAPIModelName(), metav1.ListMeta{}.OpenAPIModelName()
	user := UserInfo{}.OpenAPIModelName()
	return map[string]common.OpenAPIDefinition{
		Cluster{}.OpenAPIModelName(): kind("Cluster is a managed cluster, as the replica of the proxy API that answers sees it.", objectMeta, ClusterStatus{}.OpenAPIModelName(),
			map[string]spec.Schema{"status": refTo("Whether and how the cluster is reached.", ClusterStatus{}.OpenAPIModelName())}, "status"),
		ClusterStatus{}.OpenAPIModelName(): object("ClusterStatus says whether and how a cluster is reached.", map[string]spec.Schema{
			"available":    text("True, False or Unknown: the condition Available of the cluster's ManagedClusterAddOn."),
			"reason":       text("Reason of the condition, unless it is True."),
			"message":      text("The beginning of what the condition says, unless it is True."),
			"tunnels":      *spec.Int32Property().WithDescription("How many connections through the tunnel this replica has open."),
			"latency":      text("Moving average of the time to the header of an answer."),
			"requests":     *spec.Int64Property().WithDescription("How many requests this replica has sent to the cluster and seen answered since countedSince."),
			"countedSince": *spec.DateTimeProperty().WithDescription("When this replica began to count requests. It tells the counts of replicas apart."),
			"version":      text("Version of Kubernetes on the cluster."),
			"lastSeen":     *spec.DateTimeProperty().WithDescription("When the cluster was last known to be reachable."),
		}, nil, "available", "tunnels", "requests"),
		ClusterList{}.OpenAPIModelName(): kind("ClusterList is a list of clusters that the caller may reach.", listMeta, Cluster{}.OpenAPIModelName(), map[string]spec.Schema{
			"items": {SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &spec.Schema{SchemaProps: spec.SchemaProps{
				Default: map[string]any{}, Ref: ref(Cluster{}.OpenAPIModelName())}}}}}}, "items"),
		ClusterIdentity{}.OpenAPIModelName(): kind("ClusterIdentity says who the caller is on the hub and on a cluster.", objectMeta, user, map[string]spec.Schema{
			"hub":     refTo("Who the hub says the caller is.", user),
			"cluster": refTo("Who the cluster's kube-apiserver says the caller is.", user),
		}, "hub", "cluster"),
		Session{}.OpenAPIModelName(): kind("Session is a stream of a user that is open. Deleting it ends the stream.", objectMeta, SessionStatus{}.OpenAPIModelName(),
			map[string]spec.Schema{"status": refTo("Whose the session is, and what for.", SessionStatus{}.OpenAPIModelName())}, "status"),
		SessionStatus{}.OpenAPIModelName(): object("SessionStatus says whose a session is, and what for.", map[string]spec.Schema{
			"user":     text("Name of the user on the hub; empty if the hub does not know the user."),
			"kind":     text("exec, attach, port-forward, connect, upgrade or view-watch."),
			"cluster":  text("The managed cluster; empty for a watch of a view."),
			"view":     text("The FleetView of a watch."),
			"target":   text("Namespace, pod and container, or the Service, or what is watched."),
			"bytesIn":  *spec.Int64Property().WithDescription("How many bytes the user has sent."),
			"bytesOut": *spec.Int64Property().WithDescription("How many bytes were sent to the user."),
			"replica":  text("The pod of the proxy API that has the session."),
		}, nil, "kind", "bytesIn", "bytesOut", "replica"),
		SessionList{}.OpenAPIModelName(): kind("SessionList is a list of sessions, those of all replicas.", listMeta, Session{}.OpenAPIModelName(), map[string]spec.Schema{
			"items": {SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &spec.Schema{SchemaProps: spec.SchemaProps{
				Default: map[string]any{}, Ref: ref(Session{}.OpenAPIModelName())}}}}}}, "items"),
		user: object("UserInfo is a user.", map[string]spec.Schema{
			"username": text("Name of the user."), "uid": text("Unique identifier of the user."), "groups": texts("Groups of the user."),
			"extra": *spec.MapProperty(spec.ArrayProperty(spec.StringProperty())).WithDescription("More about the user."),
		}, nil),
	}
}

func text(description string) spec.Schema { return *spec.StringProperty().WithDescription(description) }

func texts(description string) spec.Schema {
	return *spec.ArrayProperty(spec.StringProperty()).WithDescription(description)
}

func object(description string, properties map[string]spec.Schema, dependencies []string, required ...string) common.OpenAPIDefinition {
	return common.OpenAPIDefinition{
		Schema:       spec.Schema{SchemaProps: spec.SchemaProps{Description: description, Type: []string{"object"}, Properties: properties, Required: required}},
		Dependencies: dependencies,
	}
}
