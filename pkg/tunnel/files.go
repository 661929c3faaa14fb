package tunnel

import (
	"crypto/tls"
	"fmt"
	"net"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// FromFiles is a Dialer with the CA bundle that the proxy server's certificate
// is verified with, and the client certificate and its key, from PEM files. It
// fails if they cannot be loaded. They are read again for every new connection
// to the proxy server; while they cannot be, the ones before stay in use.
func FromFiles(proxyServer, ca, cert, key string) (*Dialer, error) {
	host, _, err := net.SplitHostPort(proxyServer)
	if err != nil {
		return nil, fmt.Errorf("parsing proxy server address: %w", err)
	}
	source := pki.NewReloader(pki.Files{Cert: cert, Key: key, CA: ca})
	if err := source.Load(); err != nil {
		return nil, err
	}
	return &Dialer{ProxyServer: proxyServer, TLS: func() *tls.Config {
		// If the new files are wrong, the old ones may still work; if not, the
		// handshake fails.
		_ = source.Load()
		return source.ClientConfig(host)
	}}, nil
}
