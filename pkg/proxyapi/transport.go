package proxyapi

import (
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"k8s.io/apiserver/pkg/apis/audit"
	apiaudit "k8s.io/apiserver/pkg/audit"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
)

// clusterTransport sends requests to the cluster, and as the user, of their scope.
type clusterTransport struct{ agents *agentclient.Client }

func (t clusterTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	scope := scopeOf(r.Context())
	if err := scope.target.Apply(r.URL); err != nil {
		return nil, err
	}
	return t.agents.RoundTrip(r, scope.to(), scope.identity())
}

// correlate adds to header the IDs of a request's audit event and trace.
func correlate(r *http.Request, header http.Header) {
	if id := apiaudit.GetAuditIDTruncated(r.Context()); id != "" {
		header.Set(audit.HeaderAuditID, id)
	}
	propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(header))
}
