package fault

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Refuse returns the error of a request that a view refuses; the message says what to do.
// One with 503 is of a moment: clients repeat the request.
func Refuse(code int, message string) *apierrors.StatusError {
	return &status.New(code, message).StatusError
}

// Unreachable returns the error of a request that needs clusters, each of which did not answer.
func Unreachable(faults []*Fault) *apierrors.StatusError {
	return unreachable(faults, !slices.ContainsFunc(faults, func(f *Fault) bool { return f.Away }))
}

// NoneAnswered returns the error of a request for which one of the clusters were enough.
func NoneAnswered(faults []*Fault) *apierrors.StatusError {
	return unreachable(faults, slices.ContainsFunc(faults, func(f *Fault) bool { return !f.Away && !f.Lasting() }))
}

// AllFailed returns the error of a request in which no cluster has a part: of those that did not
// answer, which also says who refused, and else the first refusal.
func AllFailed(failures, absent []*Fault) error {
	var silent, refused []*Fault
	for _, f := range failures {
		if f.Code != 0 && f.Code < http.StatusInternalServerError {
			refused = append(refused, f)
		} else {
			silent = append(silent, f)
		}
	}
	if len(silent) == 0 {
		return slices.Concat(refused, absent)[0]
	}
	err := NoneAnswered(silent)
	if len(refused) > 0 {
		err.ErrStatus.Message += "; " + Outcomes(refused)
	}
	return err
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
	status.Write(w, failure.Status())
}

// Status is what a client is answered if this fault is why: the cluster's own refusal.
func (f *Fault) Status() metav1.Status {
	switch {
	case f.Code == 0:
		return Unreachable([]*Fault{f}).ErrStatus
	case f.Answer.Kind == "":
		return Refuse(f.Code, f.Error()).ErrStatus
	}
	return f.Answer
}
