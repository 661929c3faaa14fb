package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// ServerName is the name under which every kube-apiserver has a certificate.
const ServerName = "kubernetes.default.svc"

// Dialer dials into managed clusters. It may be used by many goroutines at a
// time. Its fields must not change after the first dial, and it must not be
// copied.
type Dialer struct {
	// ProxyServer is the host:port at which the proxy server takes clients.
	ProxyServer string
	// Address, if it is set, returns the host:port to connect to in the place of
	// ProxyServer. It is called for each connection.
	Address func() string
	// TLS returns the configuration for the next connection to the proxy server:
	// client certificate and roots. It is called for each connection, so that
	// files may be read again. If ServerName is empty, ProxyServer's host is
	// what the certificate must be for. Nil means no TLS at all, which makes
	// sense in tests only.
	TLS func() *tls.Config
	// DialTimeout bounds a dial from end to end. Zero means
	// DefaultDialTimeout. An earlier deadline of the context counts.
	DialTimeout time.Duration

	mu     sync.Mutex
	via    *carriers
	closed bool
}

// DialContext connects to address, which is "<cluster>:<port>", through the
// tunnel of that cluster. The network must be tcp, tcp4 or tcp6. It has the
// signature of rest.Config.Dial, and its errors are *Error. The context only
// counts until DialContext returns.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := checkAddress(network, address); err != nil {
		return nil, fail(Invalid, address, err.Error(), err)
	}
	via, err := d.transport()
	if err != nil {
		return nil, fail(Closed, address, err.Error(), err)
	}
	timeout := d.DialTimeout
	if timeout == 0 {
		timeout = DefaultDialTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return via.dial(ctx, address)
}

func checkAddress(network, address string) error {
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("network %q is not tcp", network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("parsing address: %w", err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil {
		return fmt.Errorf("address %q is not <cluster>:<port number>", address)
	}
	return nil
}

func (d *Dialer) transport() (*carriers, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, net.ErrClosed
	}
	if d.via == nil {
		if d.ProxyServer == "" {
			return nil, errors.New("the Dialer has no ProxyServer address")
		}
		d.via = newCarriers(d.ProxyServer, d.TLS)
		if d.Address != nil {
			d.via.address = d.Address
		}
	}
	return d.via, nil
}

// RESTConfig is a configuration for client-go that reaches the kube-apiserver
// of cluster through the tunnel, with TLS from end to end. The caller adds that
// cluster's CA and a credential.
func (d *Dialer) RESTConfig(cluster string) *rest.Config {
	return &rest.Config{
		Host:            "https://" + cluster,
		TLSClientConfig: rest.TLSClientConfig{ServerName: ServerName},
		Dial:            d.DialContext,
		// HTTPS_PROXY in the environment must not divert what is dialed.
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	}
}

// Close ends all dials and connections and releases what the Dialer holds. Later dials
// fail with code Closed.
func (d *Dialer) Close() error {
	d.mu.Lock()
	via := d.via
	d.via, d.closed = nil, true
	d.mu.Unlock()
	if via == nil {
		return nil
	}
	return via.pool.Close()
}

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
