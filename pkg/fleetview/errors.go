package fleetview

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// maxWarnings is how many clusters Warnings and causes name; a count follows.
	maxWarnings = 10
	// maxWarning is how many bytes of a Warning are shown: members write parts of them.
	maxWarning = 500
)

var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusForbidden:             metav1.StatusReasonForbidden,
	http.StatusNotFound:              metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
	http.StatusNotAcceptable:         metav1.StatusReasonNotAcceptable,
	http.StatusConflict:              metav1.StatusReasonConflict,
	http.StatusGone:                  metav1.StatusReasonExpired,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusUnsupportedMediaType:  metav1.StatusReasonUnsupportedMediaType,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
	http.StatusBadGateway:            metav1.StatusReasonInternalError,
}

// refuse is the error of a request that is refused; message says what to do.
func refuse(code int, message string) *apierrors.StatusError {
	status := metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: message}
	if code == http.StatusServiceUnavailable {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// warn adds a header for each cluster whose objects are not in the answer. kubectl prints
// them.
func warn(header http.Header, failures []*failure) {
	sorted := slices.SortedFunc(slices.Values(failures), func(a, b *failure) int { return cmp.Compare(a.cluster, b.cluster) })
	for i, f := range sorted {
		if i == maxWarnings {
			addWarning(header, fmt.Sprintf("%d more clusters did not answer; their objects are not shown", len(sorted)-i))
			return
		}
		addWarning(header, fmt.Sprintf("cluster %s %s; its objects are not shown", f.cluster, f.outcome()))
	}
}

// addWarning adds a header of which members may have written a part.
func addWarning(header http.Header, text string) {
	if len(text) > maxWarning {
		text = text[:maxWarning] + "..."
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if warning, err := utilnet.NewWarningHeader(299, "-", text); err == nil { // it has no control characters
		header.Add("Warning", warning)
	}
}

// unreachable is the error of a request that needs clusters that did not answer.
func unreachable(failures []*failure) error {
	err := refuse(http.StatusServiceUnavailable, fmt.Sprintf("%d clusters of the view did not answer: try again", len(failures)))
	for i, f := range failures {
		if i == maxWarnings {
			break
		}
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "ClusterUnreachable", Field: f.cluster, Message: f.outcome()})
	}
	if len(failures) == 1 {
		err.ErrStatus.Message = failures[0].Error() + ": try again"
	}
	return err
}

// writeFailure answers with an error as a Status.
func writeFailure(w http.ResponseWriter, err error) {
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
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body) // an error is the client's: it has gone
}
