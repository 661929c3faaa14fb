package agentclient

import (
	"context"
	"net"
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// DialAPIServer connects to a cluster's kube-apiserver, for a client that speaks TLS
// with it.
func (c *Client) DialAPIServer(ctx context.Context, cluster string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	raw, err := c.options.Dial(ctx, "tcp", net.JoinHostPort(cluster, "443"))
	p := c.pool(cluster)
	if err := p.dialed(err); err != nil {
		return nil, err
	}
	return p.track(raw)
}

// DialService has the agent connect to a Service, which it decides about too. The
// agent gets the headers of ask.
func (c *Client) DialService(ctx context.Context, ask *http.Request, to Target, as Identity) (net.Conn, error) {
	if err := SetHeaders(ask, to, as); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := c.pool(to.Cluster).connect(ctx, "http/1.1")
	if err != nil {
		return nil, err
	}
	there, err := connect.Ask(ctx, conn, net.JoinHostPort(identity.HandlerHost(to.Cluster), identity.HandlerPort), ask.Header)
	if err != nil {
		_ = conn.Close() // the error says more
		return nil, refusedByAgent(err)
	}
	return there, nil
}
