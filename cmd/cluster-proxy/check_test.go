package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// meetingDialer answers when all clusters are dialed, and refuses one of them.
type meetingDialer struct {
	all     *sync.WaitGroup
	refused string
}

func (d meetingDialer) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	d.all.Done()
	d.all.Wait()
	if address == net.JoinHostPort(identity.HandlerHost(d.refused), identity.HandlerPort) {
		return nil, errors.New("no agent")
	}
	near, _ := net.Pipe()
	return near, nil
}

// TestCheckDialsAtOnce wants what helm test says of one cluster not to depend on others, and
// no success without a cluster.
func TestCheckDialsAtOnce(t *testing.T) {
	var clusters []string
	for i := range dialedAtOnce {
		clusters = append(clusters, fmt.Sprintf("c%d", i))
	}
	var out bytes.Buffer
	dialer := meetingDialer{all: &sync.WaitGroup{}, refused: "c3"}
	dialer.all.Add(len(clusters))
	err := check(t.Context(), &out, dialer, clusters)
	if err == nil || err.Error() != `dialing cluster "c3": no agent` || strings.Count(out.String(), ": reached in ") != len(clusters)-1 {
		t.Errorf("%v, and\n%s\nwant c3 not reached, and all others", err, out.String())
	}
	if err := check(t.Context(), &out, dialer, nil); err == nil || !strings.Contains(err.Error(), "no cluster has the addon Available") {
		t.Errorf("without a cluster: %v, want an error", err)
	}
}
