package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

var errNoVerifiedPeer = errors.New("the peer has no verified certificate")

// Agent is what an agent's certificate says.
type Agent struct {
	Cluster string
	// ClusterUID is that of the ManagedCluster that the certificate was issued
	// for; empty in certificates of older addon managers.
	ClusterUID string
	// Issued is when it was issued, by the signer's clock.
	Issued time.Time
}

// PeerAgent returns the agent on the other end, from the verified certificate. The
// caller's TLS configuration must trust the agent CA only.
func PeerAgent(state tls.ConnectionState) (Agent, error) {
	leaf, err := peerLeaf(state)
	if err != nil {
		return Agent{}, err
	}
	agent := Agent{Issued: leaf.NotBefore.Add(backdate)}
	if agent.Cluster, err = identity.ClusterFromAgentCommonName(leaf.Subject.CommonName); err != nil {
		return Agent{}, err
	}
	agent.ClusterUID, err = identity.ClusterUIDFromUnits(leaf.Subject.OrganizationalUnit)
	return agent, err
}

// PeerRole is the role of the client on the other end, from the verified
// certificate. The caller's TLS configuration must trust the hub CA only.
func PeerRole(state tls.ConnectionState) (identity.Role, error) {
	leaf, err := peerLeaf(state)
	if err != nil {
		return "", err
	}
	switch role := identity.Role(leaf.Subject.CommonName); role {
	case identity.RoleClient, identity.RoleProxyAPI, identity.RoleFleetIndex, identity.RolePeer:
		return role, nil
	}
	return "", fmt.Errorf("common name %q is not a role", leaf.Subject.CommonName)
}

func peerLeaf(state tls.ConnectionState) (*x509.Certificate, error) {
	if !state.HandshakeComplete || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil, errNoVerifiedPeer
	}
	return state.VerifiedChains[0][0], nil
}
