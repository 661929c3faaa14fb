package agentaddon

import (
	"net/netip"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// values are those of the agent chart; its schema knows the same names.
type values struct {
	Access              *access                     `json:"access,omitempty"`
	Args                []string                    `json:"args"`
	AdditionalServiceCA string                      `json:"additionalServiceCA,omitempty"`
	Env                 map[string]string           `json:"env,omitempty"`
	ExposedServices     string                      `json:"exposedServices"`
	ExtraKeys           []string                    `json:"extraKeys"`
	HubBundle           string                      `json:"hubBundle"`
	Image               string                      `json:"image"`
	ImagePullPolicy     string                      `json:"imagePullPolicy"`
	ImagePullSecrets    []string                    `json:"imagePullSecrets,omitempty"`
	Index               []indexed                   `json:"index,omitempty"`
	NetworkPolicy       networkPolicy               `json:"networkPolicy"`
	NodeSelector        map[string]string           `json:"nodeSelector,omitempty"`
	OnHub               bool                        `json:"onHub"`
	ManagedClusterUID   string                      `json:"managedClusterUID"`
	OIDCCA              string                      `json:"oidcCA,omitempty"`
	PortForward         bool                        `json:"portForward"`
	ProxyCA             string                      `json:"proxyCA,omitempty"`
	PriorityClassName   string                      `json:"priorityClassName,omitempty"`
	Replicas            int32                       `json:"replicas"`
	Resources           corev1.ResourceRequirements `json:"resources"`
	Tolerations         []corev1.Toleration         `json:"tolerations,omitempty"`
	MinReadySeconds     int32                       `json:"minReadySeconds,omitempty"`
	Former              *former                     `json:"former,omitempty"`
	GraceSeconds        int64                       `json:"graceSeconds"`

	// namespace is the agent's; addon-framework asks for it by itself.
	namespace string
	// ignored are customized variables that mean nothing here.
	ignored []string
}

// access is a ClusterRole, and to whom it is bound.
type access struct {
	ClusterRole string    `json:"clusterRole"`
	Subjects    []subject `json:"subjects"`
}

// subject is a user or a group, by the name on the cluster.
type subject struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// indexed are resources of one group of which the agent sends rows to the fleet index.
type indexed struct {
	Group     string   `json:"group"`
	Resources []string `json:"resources"`
}

// former is what upstream's agents need while they serve clients beside those of this
// release. The names of the objects are upstream's: the work agent would otherwise
// remove what they use before they end.
type former struct {
	// KubeAPIHost is the name of the Service that leads to the kube-apiserver; empty if
	// there is none.
	KubeAPIHost string `json:"kubeAPIHost,omitempty"`
	// ServiceDomain ends the names of Services on the cluster.
	ServiceDomain string `json:"serviceDomain"`
}

// networkPolicy is what the agent's NetworkPolicy is made of.
type networkPolicy struct {
	Enabled bool `json:"enabled"`
	// Peers are what agents dial outside the cluster.
	Peers []networkPeer `json:"peers,omitempty"`
}

// networkPeer is an address, where it is known, and a port. A NetworkPolicy
// cannot name a host.
type networkPeer struct {
	CIDR string `json:"cidr,omitempty"`
	Port int    `json:"port"`
}

// peer makes one of a host name or an IP address.
func peer(host string, port int) networkPeer {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return networkPeer{Port: port}
	}
	return networkPeer{CIDR: netip.PrefixFrom(address, address.BitLen()).String(), Port: port}
}

// portOf is the port of a proxy.
func portOf(u *url.URL) int {
	port, err := strconv.Atoi(u.Port())
	switch {
	case err == nil:
		return port
	case u.Scheme == "https":
		return 443
	}
	return 80
}
