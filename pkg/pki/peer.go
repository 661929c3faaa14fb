package pki

import (
	"crypto/tls"
	"errors"
	"fmt"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

var errNoVerifiedPeer = errors.New("the peer has no verified certificate")

// PeerAgent is the cluster whose agent is on the other end, from the verified
// certificate. The caller's TLS configuration must trust the agent CA only.
func PeerAgent(state tls.ConnectionState) (cluster string, err error) {
	commonName, err := peerCommonName(state)
	if err != nil {
		return "", err
	}
	return identity.ClusterFromAgentCommonName(commonName)
}

// PeerRole is the role of the client on the other end, from the verified
// certificate. The caller's TLS configuration must trust the hub CA only.
func PeerRole(state tls.ConnectionState) (identity.Role, error) {
	commonName, err := peerCommonName(state)
	if err != nil {
		return "", err
	}
	switch role := identity.Role(commonName); role {
	case identity.RoleClient, identity.RoleProxyAPI, identity.RolePeer:
		return role, nil
	}
	return "", fmt.Errorf("common name %q is not a role", commonName)
}

func peerCommonName(state tls.ConnectionState) (string, error) {
	if !state.HandshakeComplete || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return "", errNoVerifiedPeer
	}
	return state.VerifiedChains[0][0].Subject.CommonName, nil
}
