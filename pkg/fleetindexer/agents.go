package fleetindexer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// maxRefusal bounds what is read of an agent's answer that is no stream, and maxDecisions what is read of decisions.
const maxRefusal, maxDecisions = 16 << 10, 1 << 20

// agents opens streams of rows.
type agents interface {
	// open asks a cluster's agent for rows. The stream ends with ctx.
	open(ctx context.Context, cluster string, request *feed.Request) (io.ReadCloser, error)
}

// reviewers ask clusters what users may do.
type reviewers interface {
	// review asks a cluster's agent the questions of a review as a user.
	review(ctx context.Context, cluster string, as user.Info, review *feed.Review) ([]feed.Decision, error)
}

// refusedError is an agent's answer that is neither a stream nor decisions.
type refusedError struct {
	code    int
	message string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the agent answered %d: %s", e.code, e.message)
}

// refuses reports whether err is that the cluster's owner does not want the index (403), or that its agent is not configured
// for it (404).
func refuses(err error) bool {
	var refused *refusedError
	return errors.As(err, &refused) && (refused.code == http.StatusForbidden || refused.code == http.StatusNotFound)
}

// isAway reports whether a cluster has no agent, if only while it restarts: its rows would go and come again otherwise. To
// package agentclient such a cluster is not away yet, because a request to it had better wait.
func isAway(err error) bool {
	return agentclient.IsAway(err, time.Time{}) || tunnel.CodeOf(err) == tunnel.NoAgent
}

// tunnelAgents asks agents through the tunnel.
type tunnelAgents struct{ client *agentclient.Client }

func (a tunnelAgents) open(ctx context.Context, cluster string, request *feed.Request) (io.ReadCloser, error) {
	// The request is the index's own: it asserts no user, and has no credential besides the certificate.
	return a.post(ctx, cluster, "/index", request, agentclient.Identity{PassThrough: true})
}

// post sends a request on the connection of the stream, if there is one: it is of the kind of a watch. It returns the body of an
// answer that is no refusal.
func (a tunnelAgents) post(ctx context.Context, cluster, path string, request any, as agentclient.Identity) (io.ReadCloser, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if len(body) > feed.MaxRequest {
		return nil, fmt.Errorf("the request has %d bytes, more than %d", len(body), feed.MaxRequest)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := a.client.RoundTrip(r, agentclient.Target{Cluster: cluster, Kind: agentclient.Watch}, as)
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

// review sends the questions. A review changes nothing, so one whose connection broke before the answer is sent once more.
func (a tunnelAgents) review(ctx context.Context, cluster string, as user.Info, review *feed.Review) ([]feed.Decision, error) {
	decisions, err := a.reviewOnce(ctx, cluster, as, review)
	if errors.As(err, new(*httprelay.Broken)) && ctx.Err() == nil {
		decisions, err = a.reviewOnce(ctx, cluster, as, review)
	}
	return decisions, err
}

func (a tunnelAgents) reviewOnce(ctx context.Context, cluster string, as user.Info, review *feed.Review) ([]feed.Decision, error) {
	body, err := a.post(ctx, cluster, "/reviews", review, agentclient.Identity{User: as})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var answer feed.Decisions
	if err := json.NewDecoder(io.LimitReader(body, maxDecisions)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("parsing decisions: %w", err)
	}
	if len(answer.Decisions) != len(review.Questions) {
		return nil, fmt.Errorf("the agent answered %d questions of %d", len(answer.Decisions), len(review.Questions))
	}
	return answer.Decisions, nil
}
