package scope

import (
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// refusal is the error of a request that is refused with an HTTP status, and a message
// that says what the caller can do.
func Refusal(code int, message string) *hubaccess.RefusedError {
	return &hubaccess.RefusedError{Code: code, Message: message}
}

// statusFor says what err means to a client that wanted cluster, and what to do. The
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

// warn puts the message of a refusal into a Warning, where clients throw the Status away:
// discovery of client-go does, and kubectl shows Warnings. Of requests for resources
// they show the Status.
func Warn(header http.Header, rs *Scope, message string) {
	info := rs.Inner
	if info == nil {
		info = rs.Info
	}
	if info != nil && info.IsResourceRequest {
		return
	}
	fault.WarnOfRefusal(header, message)
}

// NotAsked is the error of a list that could not be made.
func NotAsked(err error, what string) error {
	if errors.Is(err, hubaccess.ErrUnfinished) {
		return Unavailable("the hub's kube-apiserver has not said in time " + what + ": try again, it is asked about the rest then")
	}
	return Unavailable("the hub's kube-apiserver could not be asked " + what + ": try again")
}

// Unavailable is a 503 for package fleetview.
func Unavailable(message string) error {
	return status.New(http.StatusServiceUnavailable, message)
}
