package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
	http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
	http.StatusBadGateway:            metav1.StatusReasonInternalError,
}

// Refuse returns the error of a request that a view refuses; the message says what to do.
// One with 503 is of a moment: clients repeat the request.
func Refuse(code int, message string) *apierrors.StatusError {
	status := metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: message}
	if code == http.StatusServiceUnavailable {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// Unreachable returns the error of a request that needs clusters, each of which did not answer.
func Unreachable(faults []*Fault) *apierrors.StatusError {
	return unreachable(faults, !slices.ContainsFunc(faults, func(f *Fault) bool { return f.Away }))
}

// NoneAnswered returns the error of a request for which one of the clusters were enough.
func NoneAnswered(faults []*Fault) *apierrors.StatusError {
	return unreachable(faults, slices.ContainsFunc(faults, func(f *Fault) bool { return !f.Away && !f.Lasting() }))
}

// unreachable is of a moment if the clusters may answer soon: clients repeat the request
// then. That takes too long while one does not answer in time.
func unreachable(faults []*Fault, soon bool) *apierrors.StatusError {
	message := fmt.Sprintf("%d clusters of the view did not answer", len(faults))
	if len(faults) == 1 {
		message = faults[0].Error()
	}
	if soon {
		message += ": try again"
	}
	err := Refuse(http.StatusServiceUnavailable, message)
	if !soon || slices.ContainsFunc(faults, func(f *Fault) bool { return f.Slow }) {
		err.ErrStatus.Details.RetryAfterSeconds = 0
	}
	for _, f := range faults[:min(len(faults), MaxNamed)] {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "ClusterUnreachable", Field: f.Cluster, Message: f.Outcome()})
	}
	return err
}

// Write answers with an error as a Status.
func Write(w http.ResponseWriter, err error) {
	var failure apierrors.APIStatus
	if !errors.As(err, &failure) {
		failure = apierrors.NewInternalError(err)
	}
	status := failure.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", "1") // a member may have written another number
	}
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-cache, private")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body) // an error is the client's: it has gone
}
