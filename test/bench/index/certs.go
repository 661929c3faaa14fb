package main

import (
	"net"
	"os"
	"path/filepath"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// certs is a folder with certificates: each is NAME.crt, with its key, and what its holder trusts.
type certs string

// validity is longer than a run.
const validity = 24 * time.Hour

// Names of certificates, and of the agents' CA.
const (
	ofProxyServer, ofIndex, ofAPI, ofAPIServing = "proxy-server", "index", "api", "api-serving"
	agentsCA                                    = "agents-ca"
)

func (dir certs) file(name string) string { return filepath.Join(string(dir), name) }

// files are those of a certificate, for a holder who trusts a CA.
func (dir certs) files(name, trusted string) pki.Files {
	return pki.Files{Cert: dir.file(name + ".crt"), Key: dir.file(name + ".key"), CA: dir.file(trusted + ".crt")}
}

// hubCA is the CA of all processes on the hub.
const hubCA = "hub-ca"

// make makes all but the agents' own.
func (dir certs) make() error {
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	if err := dir.makeCA(agentsCA); err != nil {
		return err
	}
	if err := dir.makeCA(hubCA); err != nil {
		return err
	}
	ca, err := dir.ca(hubCA)
	if err != nil {
		return err
	}
	for name, leaf := range map[string]pki.Leaf{
		ofProxyServer: {CommonName: "proxy-server", IPs: local, Server: true},
		ofIndex:       {CommonName: string(identity.RoleFleetIndex), DNSNames: []string{identity.FleetIndexHost}, Server: true, Client: true},
		ofAPI:         {CommonName: string(identity.RoleProxyAPI), Client: true},
		ofAPIServing:  {CommonName: "proxy-api", IPs: local, Server: true},
	} {
		leaf.Validity = validity
		pair, err := ca.Issue(leaf, time.Now())
		if err != nil {
			return err
		}
		if err := dir.write(name, pair); err != nil {
			return err
		}
	}
	return nil
}

func (dir certs) write(name string, pair pki.KeyPair) error {
	if err := os.WriteFile(dir.file(name+".key"), pair.KeyPEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(dir.file(name+".crt"), pair.CertPEM, 0o600)
}

func (dir certs) makeCA(name string) error {
	pair, err := pki.NewCA(name, time.Now(), validity)
	if err != nil {
		return err
	}
	return dir.write(name, pair)
}

// ca reads one of the CAs.
func (dir certs) ca(name string) (*pki.CA, error) {
	var pair pki.KeyPair
	var err error
	if pair.CertPEM, err = os.ReadFile(dir.file(name + ".crt")); err != nil {
		return nil, err
	}
	if pair.KeyPEM, err = os.ReadFile(dir.file(name + ".key")); err != nil {
		return nil, err
	}
	return pki.ParseCA(pair)
}

// load reads a certificate.
func (dir certs) load(name, trusted string) (*pki.Reloader, error) {
	source := pki.NewReloader(dir.files(name, trusted))
	return source, source.Load()
}
