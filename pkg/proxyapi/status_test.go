package proxyapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

func TestStatusFor(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{&tunnel.Error{Code: tunnel.NoSuchCluster}, http.StatusNotFound},
		{&tunnel.Error{Code: tunnel.NoAgent}, http.StatusServiceUnavailable},
		{&tunnel.Error{Code: tunnel.Denied}, http.StatusForbidden},
		{&tunnel.Error{Code: tunnel.Unreachable}, http.StatusBadGateway},
		{&tunnel.Error{Code: tunnel.TimedOut}, http.StatusGatewayTimeout},
		{&tunnel.Error{Code: tunnel.Overloaded}, http.StatusTooManyRequests},
		{&tunnel.Error{Code: tunnel.Draining}, http.StatusServiceUnavailable},
		{&tunnel.Error{Code: tunnel.NoProxyServer}, http.StatusServiceUnavailable},
		{&tunnel.Error{Code: tunnel.Lost}, http.StatusBadGateway},
		{&agentclient.HandshakeError{Err: errors.New("bad certificate")}, http.StatusBadGateway},
		{&agentclient.HandshakeError{Err: context.DeadlineExceeded}, http.StatusGatewayTimeout},
		{context.Canceled, http.StatusServiceUnavailable},
		{context.DeadlineExceeded, http.StatusGatewayTimeout},
		{io.ErrUnexpectedEOF, http.StatusBadGateway},
		{&route.Error{Code: http.StatusBadRequest, Reason: "x"}, http.StatusBadRequest},
		{status.New(http.StatusNotFound, "x"), http.StatusNotFound},
	} {
		status := scope.StatusFor(fmt.Errorf("wrapped: %w", tc.err), "cluster1", time.Time{})
		if int(status.Code) != tc.want || status.Message == "" {
			t.Errorf("%v: %d %q, want %d", tc.err, status.Code, status.Message, tc.want)
		}
	}
}

// TestStatusesOfTheHubStayHere has the hub's kube-apiserver answer a question of the proxy API with
// a Status about a cluster. No caller reads it, and a caller whom nobody knows does not learn
// from it that the cluster exists.
func TestStatusesOfTheHubStayHere(t *testing.T) {
	const secret = "secret-cluster"
	resource := schema.GroupResource{Group: "cluster.open-cluster-management.io", Resource: "managedclusters"}
	f := &filter.Filters{Clusters: fakeClusters{}}
	for _, err := range []error{
		apierrors.NewNotFound(resource, secret),
		apierrors.NewForbidden(resource, secret, errors.New("no rule")),
		apierrors.NewUnauthorized(secret),
		apierrors.NewConflict(resource, secret, errors.New("changed")),
	} {
		for passThrough, want := range map[bool]int{false: http.StatusBadGateway, true: http.StatusUnauthorized} {
			rs := &scope.Scope{Kind: scope.Cluster, Target: route.Target{Cluster: "cluster1"}, PassThrough: passThrough}
			w := httptest.NewRecorder()
			f.Refuse(w, httptest.NewRequestWithContext(context.WithValue(t.Context(), scope.Key{}, rs), http.MethodGet, "/cluster1/api", nil), fmt.Errorf("reading: %w", err))
			if w.Code != want || strings.Contains(w.Body.String(), secret) || strings.Contains(fmt.Sprint(w.Header()), secret) {
				t.Errorf("%v, to a caller whom nobody knows: %t: answered %d %s, want %d without the name", err, passThrough, w.Code, w.Body, want)
			}
		}
	}
}

// TestCanceledOnTheWayIsAnswered has what a request waited for canceled, which is not
// the same as a client that is gone.
func TestCanceledOnTheWayIsAnswered(t *testing.T) {
	f := &filter.Filters{Clusters: fakeClusters{"cluster1": {}}}
	rs := &scope.Scope{Kind: scope.Cluster, Target: route.Target{Cluster: "cluster1"}}
	ctx, gone := context.WithCancel(context.WithValue(t.Context(), scope.Key{}, rs))
	refuse := func() (code int, aborted any) {
		defer func() { aborted = recover() }()
		w := httptest.NewRecorder()
		f.Refuse(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/cluster1/api", nil), fmt.Errorf("dialing: %w", context.Canceled))
		return w.Code, nil
	}
	if code, aborted := refuse(); code != http.StatusServiceUnavailable || aborted != nil {
		t.Errorf("answered %d, aborted: %v, want 503 and an answer", code, aborted)
	}
	rs.PassThrough = true // a caller whom nobody knows learns nothing of the cluster
	if code, aborted := refuse(); code != http.StatusUnauthorized || aborted != nil {
		t.Errorf("a stranger is answered %d, aborted: %v, want 401", code, aborted)
	}
	gone()
	if _, aborted := refuse(); aborted != http.ErrAbortHandler {
		t.Errorf("a request that is gone ended with %v, want %v", aborted, http.ErrAbortHandler)
	}
}
