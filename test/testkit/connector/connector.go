// Package connector reaches clusters by CONNECT through the proxy API, as programs do that
// know HTTPS proxies.
package connector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

// Connector is a user of the proxy API.
type Connector struct {
	// Address is the proxy API's, host:port, and CA the hub's, in PEM.
	Address string
	CA      []byte
	// Token is one of the hub.
	Token string
}

// Dial connects to a target, host:port, as long as ctx allows. If the proxy API refuses, the
// error is a *connect.Refusal and has its answer.
func (c Connector) Dial(ctx context.Context, target string) (net.Conn, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA)
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}).DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return nil, err
	}
	credentials := "Basic " + base64.StdEncoding.EncodeToString([]byte("any:"+c.Token))
	through, err := connect.Ask(ctx, conn, target, http.Header{"Proxy-Authorization": {credentials}})
	if err != nil {
		_ = conn.Close()
		if refusal := new(connect.Refusal); errors.As(err, &refusal) {
			err = fmt.Errorf("%w: %s", err, refusal.Body)
		}
		return nil, err
	}
	return through, nil
}
