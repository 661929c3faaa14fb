package apihandler

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
)

// TestAgentMetrics asks an agent for its own metrics, as the proxy API would and as it never
// would. Nothing of that may reach the kube-apiserver or a Service.
func TestAgentMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	counted := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "counted_total", Help: "Counted."}, []string{"zone"})
	registry.MustRegister(counted)
	counted.WithLabelValues("a").Inc()
	shown, err := OfPod("agent-1", registry)
	if err != nil {
		t.Fatal(err)
	}
	later := prometheus.NewCounter(prometheus.CounterOpts{Name: "later_total", Help: "Registered later."})
	registry.MustRegister(later)
	const want = `counted_total{pod="agent-1",zone="a"} 1`
	good := func() http.Header {
		header := http.Header{"X-Remote-User": {"prometheus"}}
		agentapi.SetAgentMetrics(header)
		return header
	}
	for name, test := range map[string]struct {
		method  string
		add     http.Header
		without string
		access  Access
		code    int
		message string
	}{
		"a user of the hub":                    {code: 200, message: want},
		"a metric that was registered later":   {code: 200, message: `later_total{pod="agent-1"} 0`},
		"where the hub's users are not let in": {access: Access{NoHubUsers: true}, code: 200, message: want},
		"a policy about other things":          {access: owned(ownerpolicy.Policy{ReadOnly: true, NoStreams: true, NoSecrets: true}, nil), code: 200, message: want},
		"a policy against it":                  {access: owned(ownerpolicy.Policy{NoMetrics: true}, nil), code: 403, message: "noMetrics"},
		"a broken policy":                      {access: owned(ownerpolicy.Policy{}, errors.New("mend the ConfigMap")), code: 403, message: "mend the ConfigMap"},
		"nobody of the hub":                    {without: "X-Remote-User", code: 403, message: "users whom the hub knows"},
		"a token in place of a user":           {without: "X-Remote-User", add: http.Header{"Authorization": {"Bearer x"}}, code: 403, message: "users whom the hub knows"},
		"a user in two spellings":              {add: http.Header{"x_remote_user": {"admin"}}, code: 400},
		"a Service too":                        {add: http.Header{"Cluster-Proxy-Service": {"s"}, "Cluster-Proxy-Namespace": {"n"}, "Cluster-Proxy-Proto": {"http"}}, code: 400, message: "does not go with"},
		"a login too":                          {add: http.Header{"Cluster-Proxy-Authorization": {"Basic x"}}, code: 400, message: "does not go with"},
		"in two spellings":                     {add: http.Header{"cluster_proxy_agent": {"metrics"}}, code: 400, message: "does not go with"},
		"in another spelling":                  {without: "Cluster-Proxy-Agent", add: http.Header{"cluster_proxy_agent": {"metrics"}}, code: 400},
		"something else of the agent":          {add: http.Header{"Cluster-Proxy-Agent": {"profile"}}, code: 400, message: "profile"},
		"twice":                                {add: http.Header{"Cluster-Proxy-Agent": {"metrics", "metrics"}}, code: 400},
		"POST":                                 {method: http.MethodPost, code: 405},
		"an upgrade":                           {add: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, code: 405},
		"the kube-apiserver's metrics":         {without: "Cluster-Proxy-Agent", code: 418},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(test.method, "/metrics", nil)
			request.Header = good()
			maps.Copy(request.Header, test.add)
			if test.without != "" {
				request.Header.Del(test.without)
			}
			kubeAPIServer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
			answer := httptest.NewRecorder()
			test.access.filter(forAgent(Metrics{Agent: shown}, byTarget(Services{}.handler(), kubeAPIServer))).ServeHTTP(answer, request)
			if answer.Code != test.code || !strings.Contains(answer.Body.String(), test.message) {
				t.Errorf("answered %d %s, want %d with %q", answer.Code, answer.Body, test.code, test.message)
			}
		})
	}
}

func owned(policy ownerpolicy.Policy, err error) Access {
	return Access{Owner: func() (ownerpolicy.Policy, error) { return policy, err }}
}
