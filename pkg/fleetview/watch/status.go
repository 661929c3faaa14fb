package watch

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// refusal is a member's answer that is not 200.
type refusal struct {
	code        int
	contentType string
	body        []byte
}

func (r *refusal) Error() string {
	if status, err := merge.ReadStatus(r.body); err == nil && status.Message != "" {
		return status.Message
	}
	return fmt.Sprintf("it answered %d %s", r.code, http.StatusText(r.code))
}

// lasting reports whether the refusal is about the request and does not go away soon.
func (r *refusal) lasting() bool {
	return r.code >= 400 && r.code < 500 && r.code != http.StatusTooManyRequests
}

// refusalOf reads the error of an answer.
func refusalOf(response *http.Response) error {
	const most = 64 << 10
	if response.StatusCode == http.StatusGone {
		return errExpired
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return fmt.Errorf("reading the answer %d: %w", response.StatusCode, err)
	}
	return &refusal{code: response.StatusCode, contentType: response.Header.Get("Content-Type"), body: text}
}

// statusError reads the object of an ERROR event.
func statusError(object []byte) error {
	status, err := merge.ReadStatus(object)
	if err != nil {
		return fmt.Errorf("reading an ERROR event: %w", err)
	}
	if status.Code == http.StatusGone {
		return errExpired
	}
	return fmt.Errorf("the cluster ended the watch: %s", status.Message)
}

// status is the refusal as the object of an ERROR event.
func (r *refusal) status() *metav1.Status {
	status, err := merge.ReadStatus(r.body)
	if err != nil {
		status = metav1.Status{Message: r.Error()}
	}
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(r.code), Reason: status.Reason, Message: status.Message,
	}
}

func expired() *metav1.Status { return gone("too old resource version") }

// gone says that the client must list again.
func gone(message string) *metav1.Status {
	status := apierrors.NewResourceExpired(message).ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return &status
}

func writeStatus(w http.ResponseWriter, status *metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	text, _ := json.Marshal(status) // a Status always has a JSON form
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(text) // the client may be gone
}
