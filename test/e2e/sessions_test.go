package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	watched "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const sessionsPath = "/apis/clusterproxy.open-cluster-management.io/v1alpha1/sessions"

// TestSessions has a user open a shell by SPDY, another by WebSocket, and a watch of a view.
// An administrator sees them, whichever replica has them, and ends each; the user reads why.
// It disturbs nothing.
func TestSessions(t *testing.T) {
	cluster := installed.Clusters[0]
	before := sessionsBy(t, nil)
	cfg := installed.ThroughProxyAPI(cluster)
	cfg.BearerToken = installed.HubToken
	ended := map[string]chan error{"spdy": openShell(t, cfg, "spdy"), "websocket": openShell(t, cfg, "websocket")}
	view := installed.ViewEndpoints("all", installed.HubToken)[0].Cfg
	watch, err := suite.Clientset(t, view).CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	var open map[string]v1alpha1.Session
	suite.Eventually(t, "two sessions of exec and one view-watch", func() error {
		// A replica that a busy machine made late is passed over, with a Warning.
		if open = sessionsBy(t, before); len(open) != 3 {
			return fmt.Errorf("sessions are %+v", open)
		}
		return nil
	})
	if err := suite.Get(t.Context(), hubConfigOf(t, installed.HubToken), sessionsPath); err == nil || !strings.Contains(err.Error(), "is forbidden") {
		t.Errorf("the user lists sessions: error %v, want 403", err)
	}
	for _, session := range open {
		status := session.Status
		isExec := status.Kind == "exec" && status.Cluster == cluster && strings.HasPrefix(status.Target, "default/")
		if isWatch := status.Kind == "view-watch" && status.View == "all"; !isExec && !isWatch || !strings.HasSuffix(status.User, ":"+suite.HubUser) || isExec && status.BytesOut == 0 {
			t.Errorf("session is %+v, want %s's exec or view-watch", status, suite.HubUser)
		}
		suite.Eventually(t, "the end of "+status.Kind, func() error {
			err := installed.Hub.RESTClient().Delete().AbsPath(sessionsPath, session.Name).Do(t.Context()).Error()
			if apierrors.IsServiceUnavailable(err) { // its replica was passed over
				return err
			}
			if err != nil {
				t.Errorf("ending %s: %v", status.Kind, err)
			}
			return nil
		})
	}
	for name, err := range map[string]error{"spdy": <-ended["spdy"], "websocket": <-ended["websocket"]} {
		if err == nil || !strings.Contains(err.Error(), "ended by an administrator") {
			t.Errorf("exec by %s ended with %v, want that an administrator ended it", name, err)
		}
	}
	told := false
	for event := range watch.ResultChan() {
		told = told || event.Type == watched.Error && strings.Contains(apierrors.FromObject(event.Object).Error(), "ended by an administrator")
	}
	if !told {
		t.Error("the watch ended without an ERROR event that an administrator ended it")
	}
	suite.Eventually(t, "no session", func() error {
		if left := sessionsBy(t, before); len(left) > 0 {
			return fmt.Errorf("sessions are %+v", left)
		}
		return nil
	})
}

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
