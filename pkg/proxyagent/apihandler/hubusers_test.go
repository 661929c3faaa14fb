package apihandler

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestNoHubUsers refuses the hub's users where the cluster's AddOnDeploymentConfig
// says so, and nobody else.
func TestNoHubUsers(t *testing.T) {
	for _, tc := range []struct {
		name       string
		noHubUsers bool
		header     http.Header
		want       int
	}{
		{"a user of the hub", false, http.Header{"X-Remote-User": {"jane"}}, http.StatusOK},
		{"a user of the hub, refused", true, http.Header{"X-Remote-User": {"jane"}}, http.StatusForbidden},
		{"the cluster's own token", true, http.Header{"Authorization": {"Bearer x"}}, http.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			handler := Access{NoHubUsers: tc.noHubUsers}.filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			request := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
			request.Header = tc.header
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			if answer.Code != tc.want {
				t.Errorf("answered %d %s, want %d", answer.Code, answer.Body, tc.want)
			}
		})
	}
}
