package status

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestNew wants the Reasons of apierrors' constructors, and Retry-After with two codes.
func TestNew(t *testing.T) {
	var resource schema.GroupResource
	// Where NewGenericServerResponse, which reads answers of foreign servers, has no Reason or
	// another one, the constructor that makes the code decides.
	made := map[int]metav1.StatusReason{
		http.StatusConflict:              apierrors.ReasonForError(apierrors.NewConflict(resource, "", nil)),
		http.StatusGone:                  apierrors.ReasonForError(apierrors.NewResourceExpired("")),
		http.StatusRequestEntityTooLarge: apierrors.ReasonForError(apierrors.NewRequestEntityTooLargeError("")),
	}
	for code := http.StatusBadRequest; code <= http.StatusLoopDetected; code++ {
		if http.StatusText(code) == "" {
			continue
		}
		want, ok := made[code]
		if !ok {
			want = apierrors.ReasonForError(apierrors.NewGenericServerResponse(code, "get", resource, "", "", 0, false))
		}
		w := httptest.NewRecorder()
		Write(w, New(code, "try something else").Status())
		var got metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if w.Code != code || got.Code != int32(code) || got.Reason != want || got.Message != "try something else" || got.Kind != "Status" || got.Status != metav1.StatusFailure {
			t.Errorf("%d: got %d %+v, want reason %q", code, w.Code, got, want)
		}
		wantRetry := ""
		if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
			wantRetry = "1"
		}
		if retry := w.Header().Get("Retry-After"); retry != wantRetry {
			t.Errorf("%d: Retry-After %q, want %q", code, retry, wantRetry)
		}
	}
}
