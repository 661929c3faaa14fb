package proxyapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
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
		{context.Canceled, agentclient.StatusClientClosed},
		{context.DeadlineExceeded, http.StatusGatewayTimeout},
		{io.ErrUnexpectedEOF, http.StatusBadGateway},
		{&route.Error{Code: http.StatusBadRequest, Reason: "x"}, http.StatusBadRequest},
		{refusal(http.StatusNotFound, "x"), http.StatusNotFound},
	} {
		code, message := statusFor(fmt.Errorf("wrapped: %w", tc.err), "cluster1", time.Time{})
		if code != tc.want || message == "" {
			t.Errorf("%v: %d %q, want %d", tc.err, code, message, tc.want)
		}
	}
}
