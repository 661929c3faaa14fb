package proxyapi

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// retryAfter is always this short: see the package comment.
const retryAfter = 1

// statusClientClosed is what metrics show for a client that went away before
// it got an answer. Nobody is sent it.
const statusClientClosed = 499

// refusal is the error of a request that is refused with an HTTP status, and a message
// that says what the caller can do.
func refusal(code int, message string) *hubaccess.RefusedError {
	return &hubaccess.RefusedError{Code: code, Message: message}
}

// handshakeError is the failure of TLS between the proxy API and an agent.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return fmt.Sprintf("TLS with the agent: %v", e.err) }
func (e *handshakeError) Unwrap() error { return e.err }

// statusFor says what err means to a client that wanted cluster: the HTTP
// status, and what to do. The cluster's addon was lost at since, if not zero.
func statusFor(err error, cluster string, since time.Time) (code int, message string) {
	var (
		refused   *route.Error
		known     *hubaccess.RefusedError
		notServed *hubaccess.NotServedError
		handshake *handshakeError
		untrusted *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &refused):
		return refused.Code, refused.Reason
	case errors.As(err, &known):
		return known.Code, known.Message
	case errors.As(err, &notServed) && errors.As(err, &handshake):
		return http.StatusBadGateway, "the agent that answers is not served: " + notServed.Error()
	case errors.As(err, &notServed):
		return http.StatusNotFound, notServed.Error()
	}
	switch tunnel.CodeOf(err) {
	case tunnel.NoSuchCluster:
		return http.StatusNotFound, fmt.Sprintf("managed cluster %q is not known to the proxy server", cluster)
	case tunnel.NoAgent:
		return http.StatusServiceUnavailable, noAgent(cluster, since)
	case tunnel.Denied:
		return http.StatusForbidden, fmt.Sprintf("the agent of cluster %q does not allow this destination: see its destination policy", cluster)
	case tunnel.Overloaded:
		return http.StatusTooManyRequests, fmt.Sprintf("the tunnel to cluster %q has too many connections: try again", cluster)
	case tunnel.Draining:
		return http.StatusServiceUnavailable, fmt.Sprintf("the tunnel to cluster %q is being restarted: try again", cluster)
	case tunnel.NoProxyServer:
		return http.StatusServiceUnavailable, "the proxy server cannot be reached from the proxy API: check its Deployment and the certificates of both on the hub"
	case tunnel.Unreachable:
		return http.StatusBadGateway, fmt.Sprintf("the agent of cluster %q could not connect to its API handler: check the proxy-agent pods on that cluster", cluster)
	case tunnel.TimedOut:
		return http.StatusGatewayTimeout, fmt.Sprintf("cluster %q did not answer in time: check its load, and the network between it and the hub", cluster)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return statusClientClosed, "the client went away"
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, fmt.Sprintf("cluster %q did not answer in time: check its load, and the network between it and the hub", cluster)
	case errors.As(err, &untrusted):
		return http.StatusBadGateway, fmt.Sprintf("what answers in the name of cluster %q has no valid certificate of that cluster's agent: check the agent's certificate and the agent CA of the hub", cluster)
	case errors.As(err, &handshake):
		return http.StatusBadGateway, fmt.Sprintf("TLS with the agent of cluster %q did not come about: check the proxy-agent pods on that cluster and the certificate of the proxy API", cluster)
	}
	return http.StatusBadGateway, fmt.Sprintf("the connection to cluster %q broke before it answered: try again", cluster)
}

func noAgent(cluster string, since time.Time) string {
	when := ""
	if !since.IsZero() {
		when = " since " + since.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("no agent of cluster %q is connected%s: check \"kubectl get managedclusteraddon -n %s %s\" on the hub and the %s pods on that cluster",
		cluster, when, cluster, identity.AddonName, identity.AgentUser)
}

var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:         metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:       metav1.StatusReasonUnauthorized,
	http.StatusForbidden:          metav1.StatusReasonForbidden,
	http.StatusNotFound:           metav1.StatusReasonNotFound,
	http.StatusTooManyRequests:    metav1.StatusReasonTooManyRequests,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:     metav1.StatusReasonTimeout,
}

func newStatus(code int, message string) metav1.Status {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reasons[code],
		Message:  message,
	}
	if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	}
	return status
}

// writeStatus answers with a metav1.Status.
func writeStatus(w http.ResponseWriter, code int, message string) {
	status := newStatus(code, message)
	if status.Details != nil {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, message, code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	// The client may be gone, and there is nobody else to tell.
	_, _ = w.Write(body)
}
