package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AccessPolicy restricts requests to managed clusters that pass the proxy API. It is asked
// after the hub has allowed a request, and grants nothing: what RBAC refuses stays refused. A
// policy that does not compile, or cannot be evaluated, refuses what it selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=accesspolicies,scope=Cluster,singular=accesspolicy,shortName=ap
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Compiled",type=string,JSONPath=`.status.conditions[?(@.type=="Compiled")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a policy has at most 63 characters"
type AccessPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the policy selects, and what must be true of it.
	Spec AccessPolicySpec `json:"spec"`
	// +optional
	Status AccessPolicyStatus `json:"status,omitempty"`
}

// AccessPolicyList is a list of them.
//
// +kubebuilder:object:root=true
type AccessPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AccessPolicy `json:"items"`
}

// AccessPolicySpec is what a policy selects, and what must be true of it.
type AccessPolicySpec struct {
	// Subjects are whose requests the policy selects: those of a user who is one of them, and
	// those that such a user makes as another one, by impersonation. Empty means everybody,
	// those whom only a managed cluster knows included.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Subjects []AccessPolicySubject `json:"subjects,omitempty"`
	// Clusters selects the clusters that requests are for, as in a FleetView. Empty means
	// all. While a ManagedClusterSet that it names does not exist, or a selector cannot be
	// read, the policy selects all clusters.
	// +optional
	Clusters FleetViewClusters `json:"clusters,omitempty"`
	// Rules must all be true, or the request is refused. They are read in this order, and
	// the first one that is not true decides.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Rules []AccessPolicyRule `json:"rules"`
	// Mode says what becomes of a request for which a rule is not true: Enforce refuses
	// it, Warn lets it pass with a Warning header, Audit lets it pass with an annotation
	// of the audit event.
	// +optional
	// +kubebuilder:default=Enforce
	Mode AccessPolicyMode `json:"mode,omitempty"`
}

// AccessPolicySubject is a user, or users.
//
// +kubebuilder:validation:XValidation:rule="(self.kind == 'ServiceAccount') == has(self.__namespace__)",message="a ServiceAccount has a namespace, and nothing else has one"
type AccessPolicySubject struct {
	// Kind is User, Group or ServiceAccount, all of the hub.
	// +kubebuilder:validation:Enum=User;Group;ServiceAccount
	Kind string `json:"kind"`
	// Name of the user, the group or the service account.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
	// Namespace of a service account.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// AccessPolicyRule is a condition of requests.
type AccessPolicyRule struct {
	// Name is in the refusal.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Expression is a CEL expression of type bool, with these variables:
	// user (name, uid, groups, extra);
	// request (verb, group, version, resource, subresource, namespace, name, path, dryRun,
	// upgrade, service);
	// cluster (name, labels, sets, claims);
	// now, a timestamp.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`
	// Message says to users why a request is refused, and what they can do.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// AccessPolicyMode says what becomes of a request for which a rule is not true.
// +kubebuilder:validation:Enum=Enforce;Warn;Audit
type AccessPolicyMode string

// The modes.
const (
	// ModeEnforce refuses it.
	ModeEnforce AccessPolicyMode = "Enforce"
	// ModeWarn lets it pass with a Warning header.
	ModeWarn AccessPolicyMode = "Warn"
	// ModeAudit lets it pass with an annotation of the audit event.
	ModeAudit AccessPolicyMode = "Audit"
)

const (
	// ConditionTypeAccessPolicyCompiled is False while a rule does not compile, or it cannot be read
	// which clusters the policy selects. Its message says what to do.
	ConditionTypeAccessPolicyCompiled = "Compiled"
	// ReasonExpressionInvalid means that rules do not compile. The policy refuses what it selects.
	ReasonExpressionInvalid = "ExpressionInvalid"
	// ReasonAccessPolicyCompiled is the reason while the condition is True. While it is False for the
	// selection of clusters, its reason is one of a FleetView's, and the policy selects all clusters.
	ReasonAccessPolicyCompiled = "Compiled"
)

// The kinds of subjects.
const (
	SubjectUser           = "User"
	SubjectGroup          = "Group"
	SubjectServiceAccount = "ServiceAccount"
)

// AccessPolicyStatus is what the addon manager found out about a policy.
type AccessPolicyStatus struct {
	// ObservedGeneration is the generation that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
