package pool

import (
	"context"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// Ping waits for the peer to answer an OPEN for carrier.NetworkPing. It returns nil once
// the peer answered, whatever the answer says, and if all carriers are in use: that is no sign
// of a silent peer.
func (p *Pool) Ping(ctx context.Context) error {
	conn, err := p.Open(ctx, carrier.OpenRequest{Network: carrier.NetworkPing})
	if conn != nil {
		_ = conn.Close()
	}
	if carrier.Answered(err) || err == errFull {
		return nil
	}
	return err
}
