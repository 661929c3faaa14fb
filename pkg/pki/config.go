package pki

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
)

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
	config := g.tls.apply(&tls.Config{
		Certificates: []tls.Certificate{*g.certificate},
		ClientAuth:   base.ClientAuth,
		// crypto/tls reads nil as "the system's roots", which must never be used here.
		ClientCAs:  x509.NewCertPool(),
		NextProtos: base.NextProtos,
	})
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
	generation := s.current.Load()
	if generation == nil {
		return s.TLS.apply(&tls.Config{ServerName: serverName, RootCAs: x509.NewCertPool()})
	}
	config := generation.tls.apply(&tls.Config{ServerName: serverName})
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
