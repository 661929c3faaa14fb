package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FleetView makes many managed clusters look like one Kubernetes API, served by the
// proxy API below fleetviews/NAME/proxy. A view grants nothing: each cluster is asked
// as the user, and a cluster that the user may not reach is not in the view for them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fv
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.clusters`
// +kubebuilder:printcolumn:name="Reachable",type=integer,JSONPath=`.status.reachable`
// +kubebuilder:printcolumn:name="Names",type=string,JSONPath=`.spec.names`
// +kubebuilder:printcolumn:name="Reads",type=string,JSONPath=`.spec.reads`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a view has at most 63 characters"
type FleetView struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the view consists of. An empty one is all clusters with everything
	// that they serve.
	// +optional
	// +kubebuilder:default={}
	Spec FleetViewSpec `json:"spec,omitempty"`
	// +optional
	Status FleetViewStatus `json:"status,omitempty"`
}

// FleetViewList is a list of them.
//
// +kubebuilder:object:root=true
type FleetViewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FleetView `json:"items"`
}

// FleetViewSpec is what a view consists of.
//
// +kubebuilder:validation:XValidation:rule="!has(self.unlistedResources) || (has(self.resources) && size(self.resources) > 0)",message="unlistedResources requires resources: without a list of resources none is unlisted"
type FleetViewSpec struct {
	// Clusters selects the clusters of the view. Empty means all clusters of the hub.
	// +optional
	Clusters FleetViewClusters `json:"clusters,omitempty"`
	// Resources are what the view has. Empty means whatever the clusters serve.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Resources []FleetViewResource `json:"resources,omitempty"`
	// UnlistedResources says where requests for resources go that are not in the list
	// of resources. Without it they are answered 404.
	// +optional
	UnlistedResources *FleetViewUnlistedResources `json:"unlistedResources,omitempty"`
	// Names is how objects are called: Plain leaves metadata.name as it is, Qualified
	// makes it NAME@CLUSTER, which keeps objects of the same name apart in clients that
	// file them by namespace and name, such as informers.
	// +optional
	// +kubebuilder:default=Plain
	Names FleetViewNames `json:"names,omitempty"`
	// Writes says which requests may change objects or connect to them (exec, attach,
	// port-forward, proxy). NamedCluster takes those that name their cluster: by
	// NAME@CLUSTER, by a namespace or a selector of one cluster, or by the annotation of
	// the object that is sent. Any also takes a name that only one cluster has. None
	// takes none. A view of one name (see clusters.names) is its cluster: NamedCluster
	// refuses nothing there.
	// +optional
	// +kubebuilder:default=NamedCluster
	Writes FleetViewWrites `json:"writes,omitempty"`
	// Reads says who answers lists as kubectl get prints them: Live asks the clusters,
	// Indexed asks the hub's fleet index, which also has what clusters that are away had
	// when they were last heard, and says so in a Warning header. Everything else goes to
	// the clusters, and so does a list that the index cannot answer. In a view of one name
	// (see clusters.names) it means nothing: its cluster answers.
	// +optional
	// +kubebuilder:default=Live
	Reads FleetViewReads `json:"reads,omitempty"`
	// WhenUnreachable is what a request does for which a cluster does not answer: Warn
	// leaves out its objects and says so in a Warning header, Fail answers 503.
	// +optional
	// +kubebuilder:default=Warn
	WhenUnreachable FleetViewWhenUnreachable `json:"whenUnreachable,omitempty"`
	// ClusterTimeoutSeconds is how long a cluster may take to begin its answer.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	ClusterTimeoutSeconds int32 `json:"clusterTimeoutSeconds,omitempty"`
	// InformerTimeoutSeconds is how long initial events, and lists of informers, wait for
	// clusters that do not answer: an informer takes what it does not get for deleted.
	// Bookmarks and lists name the clusters left out after that in an annotation.
	// +optional
	// +kubebuilder:default=45
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	InformerTimeoutSeconds int32 `json:"informerTimeoutSeconds,omitempty"`
}

// FleetViewClusters selects clusters. A cluster is selected if one of the terms
// selects it. Without any term all clusters are selected.
type FleetViewClusters struct {
	// ClusterSets are names of ManagedClusterSets.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ClusterSets []string `json:"clusterSets,omitempty"`
	// Selector selects by labels of ManagedClusters.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 100) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 100)",message="a selector has at most 100 matchLabels and 100 matchExpressions"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Names are names of ManagedClusters. A view of one name, without other terms and
	// with Plain names, adds nothing to the cluster's objects and Tables: it is not to
	// be told from the cluster.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`
}

// FleetViewResource selects resources of the Kubernetes API.
type FleetViewResource struct {
	// Group is the API group; empty means the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	Group string `json:"group"`
	// Resource is the plural name, such as pods, or "*" for all of the group.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^(\*|[a-z]([-a-z0-9]*[a-z0-9])?)$`
	Resource string `json:"resource"`
	// Namespaces are the ones that the view has. Without it the view has all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`
}

// FleetViewUnlistedResources says where requests for other resources go.
type FleetViewUnlistedResources struct {
	// Cluster is the name of the ManagedCluster that answers them. It need not be
	// one of the view's.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster"`
}

// FleetViewNames is how objects of a view are called.
// +kubebuilder:validation:Enum=Plain;Qualified
type FleetViewNames string

// The ways of naming.
const (
	// NamesPlain leaves metadata.name as it is.
	NamesPlain FleetViewNames = "Plain"
	// NamesQualified makes metadata.name NAME@CLUSTER.
	NamesQualified FleetViewNames = "Qualified"
)

// FleetViewWrites says which requests of a view may change objects.
// +kubebuilder:validation:Enum=NamedCluster;Any;None
type FleetViewWrites string

// Which requests may change objects, or connect to them.
const (
	// WritesNamedCluster are those that name their cluster.
	WritesNamedCluster FleetViewWrites = "NamedCluster"
	// WritesAny are also those to a name that one cluster has.
	WritesAny FleetViewWrites = "Any"
	// WritesNone are none.
	WritesNone FleetViewWrites = "None"
)

// FleetViewReads says who answers lists as kubectl get prints them.
// +kubebuilder:validation:Enum=Indexed;Live
type FleetViewReads string

// The ways of reading.
const (
	// ReadsIndexed is the fleet index, where it can.
	ReadsIndexed FleetViewReads = "Indexed"
	// ReadsLive are the clusters.
	ReadsLive FleetViewReads = "Live"
)

// FleetViewWhenUnreachable is what a request does for which a cluster does not answer.
// +kubebuilder:validation:Enum=Warn;Fail
type FleetViewWhenUnreachable string

// The ways in which a request goes on without a cluster that does not answer.
const (
	// WhenUnreachableWarn leaves out its objects and says so in a Warning header.
	WhenUnreachableWarn FleetViewWhenUnreachable = "Warn"
	// WhenUnreachableFail answers 503.
	WhenUnreachableFail FleetViewWhenUnreachable = "Fail"
)

const (
	// ConditionTypeFleetViewValid is False while a view asks for something that cannot
	// be. Its message says what to do.
	ConditionTypeFleetViewValid = "Valid"
	// ReasonSelectorInvalid means that spec.clusters.selector is none. The view serves
	// nothing.
	ReasonSelectorInvalid = "SelectorInvalid"
	// ReasonClusterSetInvalid means the same of a ManagedClusterSet of the view.
	ReasonClusterSetInvalid = "ClusterSetInvalid"
	// ReasonClusterSetNotFound means that a ManagedClusterSet of the view does not exist.
	// The other terms still select clusters.
	ReasonClusterSetNotFound = "ClusterSetNotFound"
	// ReasonUnlistedClusterNotServed means that requests for unlisted resources have no
	// cluster to go to.
	ReasonUnlistedClusterNotServed = "UnlistedClusterNotServed"
	// ReasonFleetViewValid is the reason while the condition is True.
	ReasonFleetViewValid = "Valid"
	// ReasonAgentNotReported is that of an unreachable cluster whose ManagedClusterAddOn
	// has no condition Available.
	ReasonAgentNotReported = "AgentNotReported"
	// MaxUnreachable bounds the list of unreachable clusters in a view's status.
	MaxUnreachable = 100
)

// FleetViewStatus is what the hub knows of a view's clusters, whoever asks.
type FleetViewStatus struct {
	// ObservedGeneration is the generation that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Clusters is how many clusters the view selects.
	// +optional
	Clusters int32 `json:"clusters"`
	// Reachable is how many of them have an available agent.
	// +optional
	Reachable int32 `json:"reachable"`
	// UnreachableCount is how many of them have none.
	// +optional
	UnreachableCount int32 `json:"unreachableCount"`
	// Unreachable are the first 100 of those, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Unreachable []UnreachableCluster `json:"unreachable,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// UnreachableCluster is a cluster without an available agent.
type UnreachableCluster struct {
	// Name of the ManagedCluster.
	Name string `json:"name"`
	// Since is when its agent stopped being available, if that is known.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Reason is that of the condition Available of its ManagedClusterAddOn, or
	// AgentNotReported if there is no such condition.
	Reason string `json:"reason"`
}
