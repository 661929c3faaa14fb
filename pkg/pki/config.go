package pki

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// TLSParameters are the protocol's knobs. The zero value means TLS 1.3 with
// the cipher suites that Go chooses.
type TLSParameters struct {
	// MinVersion is tls.VersionTLS12 or tls.VersionTLS13; 0 means the latter.
	MinVersion uint16
	// CipherSuites apply to TLS 1.2 only; empty means Go's choice.
	CipherSuites []uint16
}

var versions = map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

// ParseTLSParameters reads konnectivity's names: a version such as
// "VersionTLS12" (empty for the default) and cipher suites as crypto/tls
// spells them. Versions before 1.2 and insecure suites are refused.
func ParseTLSParameters(minVersion string, cipherSuites []string) (TLSParameters, error) {
	var parameters TLSParameters
	if minVersion != "" {
		version, ok := versions[minVersion]
		if !ok {
			return TLSParameters{}, fmt.Errorf("TLS version %q is not one of %s", minVersion,
				strings.Join(slices.Sorted(maps.Keys(versions)), ", "))
		}
		parameters.MinVersion = version
	}
	for _, name := range cipherSuites {
		i := slices.IndexFunc(tls.CipherSuites(), func(suite *tls.CipherSuite) bool { return suite.Name == name })
		if i < 0 {
			return TLSParameters{}, fmt.Errorf("cipher suite %q is unknown or insecure", name)
		}
		parameters.CipherSuites = append(parameters.CipherSuites, tls.CipherSuites()[i].ID)
	}
	return parameters, nil
}

func (p TLSParameters) apply(config *tls.Config) *tls.Config {
	config.MinVersion = p.MinVersion
	if config.MinVersion == 0 {
		config.MinVersion = tls.VersionTLS13
	}
	config.CipherSuites = p.CipherSuites
	return config
}

// ServerConfig is for the lifetime of a listener: certificate and client CAs
// are those of the moment of each handshake. Callers may set NextProtos on it
// before its first use.
func (s *Source) ServerConfig(clientAuth tls.ClientAuthType) *tls.Config {
	config := s.TLS.apply(&tls.Config{ClientAuth: clientAuth, ClientCAs: x509.NewCertPool()})
	// Listeners look for some source of certificates before the first handshake.
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return nil, errNotLoaded
	}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		generation := s.current.Load()
		if generation == nil || generation.certificate == nil {
			return nil, errNotLoaded
		}
		return generation.serverConfig(config), nil
	}
	return config
}

func (g *generation) serverConfig(base *tls.Config) *tls.Config {
	config := &tls.Config{
		Certificates: []tls.Certificate{*g.certificate},
		ClientAuth:   base.ClientAuth,
		// crypto/tls reads nil as "the system's roots", which nobody wants here.
		ClientCAs:    x509.NewCertPool(),
		NextProtos:   base.NextProtos,
		MinVersion:   base.MinVersion,
		CipherSuites: base.CipherSuites,
	}
	if g.pool != nil {
		config.ClientCAs = g.pool
	}
	// A ticket key of its own ends all sessions with the generation.
	config.SetSessionTicketKeys([][32]byte{g.ticketKey})
	return config
}

// ClientConfig is for one dial: it holds the certificate and the roots of this
// moment. Without Files.CA the system's roots are trusted, without Files.Cert
// no certificate is presented. Before a successful Load every handshake fails.
func (s *Source) ClientConfig(serverName string) *tls.Config {
	config := s.TLS.apply(&tls.Config{ServerName: serverName})
	generation := s.current.Load()
	if generation == nil {
		config.RootCAs = x509.NewCertPool()
		return config
	}
	config.RootCAs = generation.pool
	config.ClientSessionCache = generation.sessions
	if generation.certificate != nil {
		config.Certificates = []tls.Certificate{*generation.certificate}
	}
	return config
}

// fillRandom cannot fail: crypto/rand ends the process if the system has no
// randomness.
func fillRandom(b []byte) { _, _ = rand.Read(b) }
