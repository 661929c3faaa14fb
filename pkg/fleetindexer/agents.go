package fleetindexer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// maxRefusal bounds what is read of an agent's answer that is no stream.
const maxRefusal = 16 << 10

// agents opens streams of rows.
type agents interface {
	// open asks a cluster's agent for rows. The stream ends with ctx.
	open(ctx context.Context, cluster string, request *feed.Request) (io.ReadCloser, error)
}

// refusedError is an agent's answer that is no stream.
type refusedError struct {
	code    int
	message string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the agent answered %d: %s", e.code, e.message)
}

// tunnelAgents asks agents through the tunnel.
type tunnelAgents struct{ client *agentclient.Client }

func (a tunnelAgents) open(ctx context.Context, cluster string, request *feed.Request) (io.ReadCloser, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if len(body) > feed.MaxRequest {
		return nil, fmt.Errorf("the request has %d bytes, more than %d", len(body), feed.MaxRequest)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/index", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	// The request is the index's own: it asserts no user, and has no credential besides the certificate.
	resp, err := a.client.RoundTrip(r, agentclient.Target{Cluster: cluster, Kind: agentclient.Watch}, agentclient.Identity{PassThrough: true})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var answer metav1.Status
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxRefusal)).Decode(&answer) // one without a message says nothing
	return nil, &refusedError{resp.StatusCode, feed.CutText(answer.Message)}
}
