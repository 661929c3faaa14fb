package scope

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// retryAfter is always this short: see the package comment.
const retryAfter = 1

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
		return NewStatus(malformed.Code, malformed.Reason)
	}
	status := NewStatus(agentclient.StatusOf(err, cluster, since))
	if agentclient.IsAway(err, since) {
		status.Details = nil // a client would come back ten times, for nothing
	}
	return status
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

func NewStatus(code int, message string) metav1.Status {
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

// writeStatus answers with a metav1.Status.
func WriteStatus(w http.ResponseWriter, status metav1.Status) {
	if status.Details != nil {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, status.Message, int(status.Code))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(int(status.Code))
	// The client may be gone, and no one else reads the error.
	_, _ = w.Write(body)
}

// notAsked is the error of a list that could not be made.
func NotAsked(err error, what string) error {
	if errors.Is(err, hubaccess.ErrUnfinished) {
		return Unavailable("the hub's kube-apiserver has not said in time " + what + ": try again, it is asked about the rest then")
	}
	return Unavailable("the hub's kube-apiserver could not be asked " + what + ": try again")
}

// unavailable is a 503 for package fleetview.
func Unavailable(message string) error {
	return &apierrors.StatusError{ErrStatus: NewStatus(http.StatusServiceUnavailable, message)}
}
