package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cluster is a managed cluster, as the replica of the proxy API that answers
// sees it.
//
// +kubebuilder:object:root=true
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status ClusterStatus `json:"status"`
}

// ClusterStatus says whether and how a cluster is reached.
type ClusterStatus struct {
	// Available is True, False or Unknown: the condition of that name of the
	// cluster's ManagedClusterAddOn.
	Available metav1.ConditionStatus `json:"available"`
	// Reason is that of the condition unless it is True, and Message the beginning of what
	// the condition says then: 512 bytes at most. A cluster may have a part in them.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Tunnels is how many connections through the tunnel this replica has open.
	Tunnels int32 `json:"tunnels"`
	// Latency is the time that the last few requests of this replica took to
	// get the header of their answer, as a moving average. There is none before
	// the first.
	Latency *metav1.Duration `json:"latency,omitempty"`
	// Requests is how many requests this replica has sent to the cluster and seen answered
	// since CountedSince, which differs between replicas. A lower count than before means
	// that the cluster is another one of the same name.
	Requests     int64             `json:"requests"`
	CountedSince *metav1.MicroTime `json:"countedSince,omitempty"`
	// Version of Kubernetes on the cluster.
	Version string `json:"version,omitempty"`
	// LastSeen is when the cluster was last known to be reachable: the time of
	// the answer while it is available, and else when that ended.
	LastSeen *metav1.Time `json:"lastSeen,omitempty"`
}

// ClusterList is a list of clusters that the caller may reach.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// ClusterIdentity says who the caller is on the hub and on a cluster.
//
// +kubebuilder:object:root=true
type ClusterIdentity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Hub is who the hub says the caller is.
	Hub UserInfo `json:"hub"`
	// Cluster is who the cluster's kube-apiserver says the caller is.
	Cluster UserInfo `json:"cluster"`
}

// UserInfo is a user, in the form of authentication.k8s.io/v1.
type UserInfo struct {
	Username string              `json:"username,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// Session is a stream of a user that is open: exec, attach, port-forward, a connection, or a
// watch of a fleet view. Deleting it ends the stream.
//
// +kubebuilder:object:root=true
type Session struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status SessionStatus `json:"status"`
}

// SessionStatus says whose a session is, and what for. Text that users and clusters have
// chosen is quoted if it is not printable, and cut off if it is long. Command lines are not in it.
type SessionStatus struct {
	// User is the name of the user on the hub; empty if the hub does not know the user.
	User string `json:"user,omitempty"`
	// Kind is exec, attach, port-forward, connect, upgrade or view-watch.
	Kind string `json:"kind"`
	// Cluster is the managed cluster; empty for a watch of a view.
	Cluster string `json:"cluster,omitempty"`
	// View is the FleetView of a watch.
	View string `json:"view,omitempty"`
	// Target is <namespace>/<pod>/<container>, the container only if the user named it;
	// the Service, as <namespace>/<service>:<port>; or what is watched.
	Target string `json:"target,omitempty"`
	// BytesIn are those that the user has sent, and BytesOut those that were sent to the user.
	BytesIn  int64 `json:"bytesIn"`
	BytesOut int64 `json:"bytesOut"`
	// Replica is the pod of the proxy API that has the session.
	Replica string `json:"replica"`
}

// SessionList is a list of sessions, those of all replicas.
//
// +kubebuilder:object:root=true
type SessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Session `json:"items"`
}
