package status

import (
	"encoding/json"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// retryAfter is how many seconds clients wait before they repeat a request that New lets them
// repeat. It is always this short, because client-go repeats a request up to ten times.
const retryAfter = 1

var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:          metav1.StatusReasonUnauthorized,
	http.StatusForbidden:             metav1.StatusReasonForbidden,
	http.StatusNotFound:              metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
	http.StatusNotAcceptable:         metav1.StatusReasonNotAcceptable,
	http.StatusConflict:              metav1.StatusReasonConflict,
	http.StatusGone:                  metav1.StatusReasonExpired,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusUnsupportedMediaType:  metav1.StatusReasonUnsupportedMediaType,
	http.StatusUnprocessableEntity:   metav1.StatusReasonInvalid,
	http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
}

// reasonOf returns the Reason of an HTTP status code. Codes of requests that Kubernetes has no
// Reason for have the empty one.
func reasonOf(code int) metav1.StatusReason {
	if reason, ok := reasons[code]; ok || code < http.StatusInternalServerError {
		return reason
	}
	return metav1.StatusReasonInternalError
}

// Error refuses a request. It is a type of its own: a Status that the hub's kube-apiserver or a
// cluster has answered with, an apierrors.StatusError, tells things that are not for every caller,
// and is never taken for one of these.
type Error struct{ apierrors.StatusError }

// New returns the error of a request that is refused with an HTTP status code. The message says
// what the caller can do. Codes 429 and 503 are of a moment: clients repeat the request.
func New(code int, message string) *Error {
	s := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reasonOf(code), Message: message,
	}
	if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	}
	return &Error{apierrors.StatusError{ErrStatus: s}}
}

// Write answers a request with a Status. If the Status lets clients repeat the request, they
// are told to do it after a second, whatever number of seconds the Status has.
func Write(w http.ResponseWriter, s metav1.Status) {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(s)
	if err != nil {
		http.Error(w, s.Message, int(s.Code))
		return
	}
	header := w.Header()
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-cache, private")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(body) // the client may be gone
}
