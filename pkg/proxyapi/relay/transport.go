package relay

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"k8s.io/apiserver/pkg/apis/audit"
	apiaudit "k8s.io/apiserver/pkg/audit"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// clusterTransport sends requests to the cluster, and as the user, of their scope.
type clusterTransport struct{ agents *agentclient.Client }

func (t clusterTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	rs := scope.Of(r.Context())
	if err := rs.Target.Apply(r.URL); err != nil {
		return nil, err
	}
	if rs.BeginWithin == 0 {
		return t.agents.RoundTrip(r, rs.To(), rs.Identity())
	}
	// Without a cancel of its own the context would end with the time, and the answer with it.
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(rs.BeginWithin, func() { cancel(errBeganLate) })
	resp, err := t.agents.RoundTrip(r.WithContext(ctx), rs.To(), rs.Identity())
	if !timer.Stop() && err == nil {
		resp.Body.Close() // it may have been cut off
		err = errBeganLate
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
	}
	return resp, err
}

// errBeganLate is the error of a request whose answer did not begin within beginWithin.
var errBeganLate = fmt.Errorf("the answer did not begin in time: %w", context.DeadlineExceeded)

// Correlate adds to header the IDs of a request's audit event and trace.
func Correlate(r *http.Request, header http.Header) {
	if id := apiaudit.GetAuditIDTruncated(r.Context()); id != "" {
		header.Set(audit.HeaderAuditID, id)
	}
	propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(header))
}
