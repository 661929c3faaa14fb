package agentclient

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/status"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// HandshakeError is the failure of a TLS handshake with an agent.
type HandshakeError struct{ Err error }

func (e *HandshakeError) Error() string { return fmt.Sprintf("TLS with the agent: %v", e.Err) }
func (e *HandshakeError) Unwrap() error { return e.Err }

// StatusOf returns what err means to a client that wanted cluster: the HTTP status, and
// what to do. The cluster's addon was lost at since, if that is not zero.
func StatusOf(err error, cluster string, since time.Time) (code int, message string) {
	var (
		refused   *status.Error
		notServed *clusters.NotServedError
		handshake *HandshakeError
	)
	switch {
	case errors.As(err, &refused):
		return int(refused.ErrStatus.Code), refused.ErrStatus.Message
	case errors.Is(err, errUndecided):
		return http.StatusBadRequest, err.Error()
	case errors.As(err, &notServed) && errors.As(err, &handshake):
		return http.StatusBadGateway, "the agent that answers is not served: " + notServed.Error()
	case errors.As(err, &notServed):
		return http.StatusNotFound, notServed.Error()
	}
	if code, message = statusOfTunnel(err, cluster, since); code != 0 {
		return code, message
	}
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.Canceled), tunnel.CodeOf(err) == tunnel.Canceled:
		// The request itself was not, or nobody would be there to read this.
		return http.StatusServiceUnavailable, fmt.Sprintf("the request to cluster %q was interrupted on its way: try again", cluster)
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, late(cluster)
	case errors.As(err, &untrusted):
		return http.StatusBadGateway, fmt.Sprintf("the certificate of the agent of cluster %q is not trusted (%s): run \"kubectl clusterproxy check %s\"; \"kubectl get managedproxyconfiguration\" on the hub says whether a rotation is under way", cluster, pki.HandshakeReason(err), cluster)
	case errors.As(err, &handshake):
		return http.StatusBadGateway, fmt.Sprintf("the TLS handshake with the agent of cluster %q failed: check the proxy-agent pods on that cluster and the certificate of the proxy API", cluster)
	}
	return http.StatusBadGateway, fmt.Sprintf("the connection to cluster %q broke before it answered: try again", cluster)
}

// statusOfTunnel is StatusOf for errors of the tunnel; the code is 0 for others.
func statusOfTunnel(err error, cluster string, since time.Time) (code int, message string) {
	if toAPIServer(err, cluster) {
		switch tunnel.CodeOf(err) {
		case tunnel.Denied:
			return http.StatusForbidden, fmt.Sprintf("the owner of cluster %q allows no connections from the hub that the agent cannot look into: send requests through the proxy API, or see ConfigMap cluster-proxy-owner-policy on that cluster", cluster)
		case tunnel.Unreachable:
			return http.StatusBadGateway, fmt.Sprintf("the agent of cluster %q could not connect to the kube-apiserver: check the kube-apiserver, and the agent's network", cluster)
		}
	}
	switch tunnel.CodeOf(err) {
	case tunnel.NoSuchCluster:
		return http.StatusNotFound, fmt.Sprintf("managed cluster %q is not known to the proxy server", cluster)
	case tunnel.NoAgent:
		var away *AwayError
		if errors.As(err, &away) && since.IsZero() {
			since = away.Since // the hub takes minutes to notice
		}
		return http.StatusServiceUnavailable, noAgent(cluster, since)
	case tunnel.Denied:
		return http.StatusForbidden, fmt.Sprintf("the agent of cluster %q refuses connections to its own API handler: update the addon on that cluster (\"kubectl clusterproxy version\" lists the versions)", cluster)
	case tunnel.Overloaded:
		return http.StatusTooManyRequests, fmt.Sprintf("the tunnel to cluster %q takes no more connections: %s", cluster, whyFull(err))
	case tunnel.Draining:
		return http.StatusServiceUnavailable, fmt.Sprintf("the tunnel to cluster %q is being restarted: try again", cluster)
	case tunnel.NoProxyServer:
		return http.StatusServiceUnavailable, "the proxy server cannot be reached from the proxy API: check its Deployment and the certificates of both on the hub"
	case tunnel.Unreachable:
		return http.StatusBadGateway, fmt.Sprintf("the agent of cluster %q could not connect to its API handler: check the proxy-agent pods on that cluster", cluster)
	case tunnel.TimedOut:
		return http.StatusGatewayTimeout, late(cluster)
	}
	return 0, ""
}

// maxSaid is how many bytes are shown of what an agent says.
const maxSaid = 400

// whyFull is what the proxy server or the agent says.
func whyFull(err error) string {
	var failed *tunnel.Error
	if !errors.As(err, &failed) || failed.Message == "" {
		return "try again"
	}
	said := strings.ToValidUTF8(failed.Message[:min(len(failed.Message), maxSaid)], "")
	if strings.Contains(said, "try again") {
		return said
	}
	return said + "; try again"
}

// toAPIServer reports whether err is of DialAPIServer: of all that a hub dials, only the
// kube-apiserver is capped by the owner, and is not the agent's own.
func toAPIServer(err error, cluster string) bool {
	var failed *tunnel.Error
	return errors.As(err, &failed) && failed.Cluster == cluster
}

func late(cluster string) string {
	return fmt.Sprintf("cluster %q did not answer in time: check its load, and the network between it and the hub", cluster)
}

func noAgent(cluster string, since time.Time) string {
	when := ""
	if !since.IsZero() {
		when = " since " + since.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("no agent of cluster %q is connected%s; see: kubectl clusterproxy check %s", cluster, when, cluster)
}

// refusedByAgent is what the agent said, if it said anything.
func refusedByAgent(err error) error {
	var refused *connect.Refusal
	var said metav1.Status
	if errors.As(err, &refused) && json.Unmarshal(refused.Body, &said) == nil && said.Message != "" {
		return status.New(refused.Code, said.Message)
	}
	return err
}
