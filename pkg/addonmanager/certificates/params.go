package certificates

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const (
	caValidity   = 10 * 365 * 24 * time.Hour
	managedLabel = "proxy.open-cluster-management.io/managed-certificate"
)

// Names of Secrets and of keys in them.
const (
	HubBundleSecret   = "proxy-server-ca"
	AgentBundleSecret = "cluster-proxy-agent-ca"
	APIClientSecret   = "cluster-proxy-api-client"
	UserServingSecret = "cluster-proxy-user-serving-cert"
	IndexClientSecret = "cluster-proxy-index-client"
	AgentSignerSecret = "cluster-proxy-agent-signer"
)

// Params say what to keep.
type Params struct {
	// SignerNamespace and SignerName are those of the hub CA's Secret; the agent
	// CA is beside it.
	SignerNamespace, SignerName string
	// Namespace is that of the proxy servers, for everything else.
	Namespace string
	// Owner owns everything but the CAs.
	Owner metav1.OwnerReference
	// Names of Secrets that the configuration chooses.
	ProxyServerSecret, AgentServerSecret, ProxyClientSecret string
	// ServerNames are the DNS names and IP addresses of the proxy servers,
	// UserServerNames those of the proxy API.
	ServerNames, UserServerNames []string
	// UserServerProvided says that a user brings the proxy API's certificate: none is made
	// where there is none. One that was made before goes on until the user deletes it.
	UserServerProvided bool
	// FleetIndex issues the fleet index's certificate. Without it there is none, and one that was is deleted.
	FleetIndex bool

	// Source returns the CAs; nil means that they are made here.
	Source CASource
	// Request asks for a rotation of both CAs when it changes to another text.
	// It has no effect with a Source.
	Request string
	// Checker knows which clusters have moved; without one rotations do not continue.
	Checker RotationChecker
	// Propagation is how long a pod may take to read a Secret that has changed.
	Propagation time.Duration
}

// CAName names one of the two CAs.
type CAName string

// The CAs.
const (
	HubCA   CAName = "hub CA"
	AgentCA CAName = "agent CA"
)

var commonNames = map[CAName]string{HubCA: "open-cluster-management:cluster-proxy", AgentCA: "open-cluster-management:cluster-proxy:agents"}

// CASource returns the current CA if the addon manager does not make it itself. It
// returns an error while there is none.
type CASource interface {
	CA(ctx context.Context, ca CAName) (pki.KeyPair, error)
}

// RotationChecker knows which clusters have moved to new CAs; see AgentChecker.
type RotationChecker interface {
	// Missing returns the clusters that have not passed the check, sorted, and when the
	// last one of the others passed it for the first time.
	Missing(ctx context.Context, check Check) (missing []string, last time.Time, err error)
}

// Check is what an agent must do to show that its cluster has moved.
type Check struct {
	// ID tells a check from others.
	ID string
	// Tunnel signs the certificate that leads through the proxy servers, which
	// are verified with Servers, PEM.
	Tunnel  *pki.CA
	Servers []byte
	// Client signs a certificate that the agent must accept.
	Client *pki.CA
	// Agents are the CAs under which the agent must have its own, PEM.
	Agents []byte
}

// newCA makes a CA, or takes the one that is provided.
func (p Params) newCA(ctx context.Context, ca CAName, now time.Time) (pki.KeyPair, error) {
	if p.Source == nil {
		pair, err := pki.NewCA(commonNames[ca], now, caValidity)
		if err != nil {
			return pki.KeyPair{}, fmt.Errorf("making the %s: %w", ca, err)
		}
		return pair, nil
	}
	pair, err := p.Source.CA(ctx, ca)
	if err != nil {
		return pki.KeyPair{}, err
	}
	given, err := pki.ParseCA(pair)
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("reading the %s that was provided: %w", ca, err)
	}
	// The first certificate is the CA; whatever came with it is not trusted.
	pair.CertPEM = given.CertPEM()
	return pair, nil
}

func (p Params) secretOf(ca CAName) string {
	if ca == HubCA {
		return p.SignerName
	}
	return AgentSignerSecret
}

func ownedByConfiguration(secret *corev1.Secret) bool {
	return slices.ContainsFunc(secret.OwnerReferences, isConfiguration)
}

func isConfiguration(owner metav1.OwnerReference) bool {
	return owner.Kind == "ManagedProxyConfiguration"
}
