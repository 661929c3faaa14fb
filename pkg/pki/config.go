package pki

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
)

// ServerConfig is for the lifetime of a listener: certificate and client CAs
// are those of the moment of each handshake. Callers may set NextProtos on it
// before its first use.
func (r *Reloader) ServerConfig(clientAuth tls.ClientAuthType) *tls.Config {
	config := r.TLS.apply(&tls.Config{ClientAuth: clientAuth, ClientCAs: x509.NewCertPool()})
	// Listeners require a source of certificates before the first handshake.
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return nil, errNotLoaded
	}
	// Connections keep their configuration, and a proxy server has thousands.
	var last atomic.Pointer[servedConfig]
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		snapshot := r.current.Load()
		if snapshot == nil || snapshot.certificate == nil {
			return nil, errNotLoaded
		}
		served := last.Load()
		if served == nil || served.of != snapshot {
			served = &servedConfig{snapshot, snapshot.serverConfig(config)}
			last.Store(served)
		}
		return served.config, nil
	}
	return config
}

// servedConfig is the configuration of a listener for one state of the files.
type servedConfig struct {
	of     *snapshot
	config *tls.Config
}

func (s *snapshot) serverConfig(base *tls.Config) *tls.Config {
	config := s.tls.apply(&tls.Config{
		Certificates: []tls.Certificate{*s.certificate},
		ClientAuth:   base.ClientAuth,
		// crypto/tls reads nil as "the system's roots", which must never be used here.
		ClientCAs:  x509.NewCertPool(),
		NextProtos: base.NextProtos,
	})
	if s.pool != nil {
		config.ClientCAs = s.pool
	}
	// A ticket key of its own ends all sessions with the snapshot.
	config.SetSessionTicketKeys([][32]byte{s.ticketKey})
	return config
}

// ClientConfig is for one dial: it holds the certificate and the roots of this
// moment. Without Files.CA the system's roots are trusted, without Files.Cert
// no certificate is presented. Before a successful Load every handshake fails.
func (r *Reloader) ClientConfig(serverName string) *tls.Config {
	snapshot := r.current.Load()
	if snapshot == nil {
		return r.TLS.apply(&tls.Config{ServerName: serverName, RootCAs: x509.NewCertPool()})
	}
	config := snapshot.tls.apply(&tls.Config{ServerName: serverName})
	config.RootCAs = snapshot.pool
	config.ClientSessionCache = snapshot.sessions
	if snapshot.certificate != nil {
		config.Certificates = []tls.Certificate{*snapshot.certificate}
	}
	return config
}
