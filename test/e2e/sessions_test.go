package e2e

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const sessionsPath = "/apis/clusterproxy.open-cluster-management.io/v1alpha1/sessions"

// openShell opens a shell on a cluster by SPDY or WebSocket, which says something again and
// again until it is ended. The result has how it ends.
func openShell(t *testing.T, cfg *rest.Config, protocol string) chan error {
	t.Helper()
	executor := suite.Executors(t, cfg, "sh", "-c", suite.Talk)[protocol]
	began, ended := make(chan struct{}), make(chan error, 1)
	silence, _ := io.Pipe()
	go func() {
		ended <- executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: silence, Stdout: &firstWrite{began: began}, Stderr: io.Discard})
	}()
	mustBegin(t, "the shell by "+protocol, began, ended)
	return ended
}

// mustBegin waits until something begins, which ends the test if it ends before.
func mustBegin(t *testing.T, what string, began chan struct{}, ended chan error) {
	t.Helper()
	select {
	case <-began:
	case err := <-ended:
		t.Fatalf("%s ended before it began: %v", what, err)
	}
}

// sessionsBy lists the sessions that are open now but were not before.
func sessionsBy(t *testing.T, before map[string]v1alpha1.Session) map[string]v1alpha1.Session {
	t.Helper()
	raw, err := installed.Hub.RESTClient().Get().AbsPath(sessionsPath).DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var list v1alpha1.SessionList
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]v1alpha1.Session{}
	for _, session := range list.Items {
		if _, old := before[session.Name]; !old {
			found[session.Name] = session
		}
	}
	return found
}
