package main

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// certFiles is a folder of certificates: a CA, a server's for 127.0.0.1, a
// client's for port 8090, and agents' for port 8091 as they are issued.
type certFiles string

func (dir certFiles) path(name string) string { return filepath.Join(string(dir), name) }

func (dir certFiles) make() error {
	now := time.Now()
	pair, err := pki.NewCA("bench", now, 24*time.Hour)
	if err != nil {
		return err
	}
	ca, err := pki.ParseCA(pair)
	if err != nil {
		return err
	}
	server, err := ca.Issue(pki.Leaf{CommonName: "server", IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(shapedHub)}, DNSNames: []string{"localhost"}, Server: true, Validity: 24 * time.Hour}, now)
	if err != nil {
		return err
	}
	client, err := ca.Issue(pki.Leaf{CommonName: string(identity.RoleClient), Organizations: []string{identity.Organization}, Client: true, Validity: 24 * time.Hour}, now)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt": pair.CertPEM, "ca.key": pair.KeyPEM, "server.crt": server.CertPEM, "server.key": server.KeyPEM, "client.crt": client.CertPEM, "client.key": client.KeyPEM,
	} {
		if err := os.WriteFile(dir.path(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// agent issues the certificate of a cluster's agent, and returns its files.
func (dir certFiles) agent(cluster string) (pki.Files, error) {
	var pair pki.KeyPair
	var err error
	if pair.CertPEM, err = os.ReadFile(dir.path("ca.crt")); err != nil {
		return pki.Files{}, err
	}
	if pair.KeyPEM, err = os.ReadFile(dir.path("ca.key")); err != nil {
		return pki.Files{}, err
	}
	ca, err := pki.ParseCA(pair)
	if err != nil {
		return pki.Files{}, err
	}
	leaf, err := ca.Issue(pki.Leaf{CommonName: identity.AgentCommonName(cluster), Organizations: identity.AgentOrganizations(cluster), Client: true, Validity: 24 * time.Hour}, time.Now())
	if err != nil {
		return pki.Files{}, err
	}
	files := pki.Files{Cert: dir.path("agent-" + cluster + ".crt"), Key: dir.path("agent-" + cluster + ".key"), CA: dir.path("ca.crt")}
	if err := os.WriteFile(files.Cert, leaf.CertPEM, 0o600); err != nil {
		return pki.Files{}, err
	}
	return files, os.WriteFile(files.Key, leaf.KeyPEM, 0o600)
}

// configs are those of a server that wants a client certificate, and of a
// client that has one.
func (dir certFiles) configs() (server, client *tls.Config, err error) {
	serverSource := pki.NewReloader(pki.Files{Cert: dir.path("server.crt"), Key: dir.path("server.key"), CA: dir.path("ca.crt")})
	clientSource := pki.NewReloader(pki.Files{Cert: dir.path("client.crt"), Key: dir.path("client.key"), CA: dir.path("ca.crt")})
	for _, source := range []*pki.Reloader{serverSource, clientSource} {
		if err := source.Load(); err != nil {
			return nil, nil, err
		}
	}
	return serverSource.ServerConfig(tls.RequireAndVerifyClientCert), clientSource.ClientConfig("127.0.0.1"), nil
}
