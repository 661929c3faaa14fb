package scope

import (
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authz"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Refusal is the error of a request that is refused with an HTTP status, and a message
// that says what the caller can do.
func Refusal(code int, message string) *hubaccess.RefusedError {
	return &hubaccess.RefusedError{Code: code, Message: message}
}

// StatusFor says what err means to a client that wanted cluster, and what to do. The
// cluster's addon was lost at since, if not zero.
func StatusFor(err error, cluster string, since time.Time) metav1.Status {
	var malformed *route.Error
	if errors.As(err, &malformed) {
		return status.New(malformed.Code, malformed.Reason).ErrStatus
	}
	answer := status.New(agentclient.StatusOf(err, cluster, since)).ErrStatus
	if agentclient.IsAway(err, since) {
		answer.Details = nil // a client would come back ten times, for nothing
	}
	return answer
}

// NotAsked is the error of a list that could not be made.
func NotAsked(err error, what string) error {
	if errors.Is(err, authz.ErrUnfinished) {
		return Unavailable("the hub's kube-apiserver has not said in time " + what + ": try again, it is asked about the rest then")
	}
	return Unavailable("the hub's kube-apiserver could not be asked " + what + ": try again")
}

// Unavailable is a 503 for package fleetview.
func Unavailable(message string) error {
	return status.New(http.StatusServiceUnavailable, message)
}
