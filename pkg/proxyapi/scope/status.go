package scope

import (
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authz"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

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
		return status.New(http.StatusServiceUnavailable, "the hub's kube-apiserver has not said in time "+what+": try again, it is asked about the rest then")
	}
	return status.New(http.StatusServiceUnavailable, "the hub's kube-apiserver could not be asked "+what+": try again")
}
