package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// auditEvents are the events with one Audit-ID in the audit log of a managed
// kube-apiserver.
func auditEvents(cluster, id string) ([]map[string]any, error) {
	f, err := os.Open(installed.AuditLog[cluster])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var events []map[string]any
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event map[string]any
		if !bytes.Contains(lines.Bytes(), []byte(id)) {
			continue // decoding all of them takes seconds
		}
		if json.Unmarshal(lines.Bytes(), &event) == nil && event["auditID"] == id {
			events = append(events, event)
		}
	}
	return events, lines.Err()
}

// TestManagedClusterKnowsTheHubUser finds the user of the hub in the managed
// cluster's audit log, and the user's token nowhere in it. It disturbs nothing: it
// only reads.
func TestManagedClusterKnowsTheHubUser(t *testing.T) {
	installed.NeedLab(t, "reads the kube-apiservers' audit logs")
	for _, cluster := range installed.Clusters {
		for _, endpoint := range installed.Endpoints(cluster)[2:] {
			t.Run(cluster+"/"+endpoint.Name, func(t *testing.T) {
				id := uuid.NewString()
				r := suite.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/default/pods", Header: http.Header{"Audit-Id": {id}}}
				if got, err := suite.Ask(t.Context(), endpoint.Cfg, r); err != nil || got.Code != http.StatusOK {
					t.Fatalf("answer %d, %v: %.500s; want 200", got.Code, err, got.Body)
				}
				suite.Eventually(t, "the user in the audit log", func() error {
					events, err := auditEvents(cluster, id)
					if err != nil {
						return err
					}
					for _, event := range events {
						if seen := fmt.Sprint(event["impersonatedUser"]); strings.Contains(seen, suite.HubUserThere) && strings.Contains(seen, suite.HubUserGroups) {
							return nil
						}
					}
					return fmt.Errorf("%d events with the Audit-ID, none with the user: %v", len(events), events)
				})
				log, err := os.ReadFile(installed.AuditLog[cluster])
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(log, []byte(installed.HubToken)) {
					t.Error("the hub's token is in the managed cluster's audit log")
				}
			})
		}
	}
}

// TestOwnerCapsTheHub forbids by the owner policy of a managed cluster what the hub
// allows, at every endpoint, while the agent runs. It disturbs the users of one
// cluster, who are refused for a while.
func TestOwnerCapsTheHub(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	cluster := installed.Clusters[0]
	owner := suite.Clientset(t, installed.Direct(cluster)).CoreV1().ConfigMaps(installed.AgentNamespace)
	remove := func() error {
		err := owner.Delete(context.Background(), ownerpolicy.ConfigMap, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	get := suite.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/default/configmaps"}
	create := suite.Request{Method: http.MethodPost, Path: get.Path + "?dryRun=All", Header: suite.Content("application/json"), Body: `{"metadata":{"name":"new"}}`}
	stream := suite.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/default/pods/there-is-none/proxy/"}
	wait := func(what string, codes ...int) {
		t.Helper()
		for _, endpoint := range installed.Endpoints(cluster)[1:] {
			suite.Eventually(t, what+" at "+endpoint.Name, func() error {
				for i, r := range []suite.Request{get, create, stream} {
					got, err := suite.Ask(context.Background(), endpoint.Cfg, r) // in a cleanup the test has no context
					if err != nil {
						return err
					}
					if got.Code != codes[i] {
						return fmt.Errorf("%s %s is answered %d (%.300s), want %d", r.Method, r.Path, got.Code, got.Body, codes[i])
					}
				}
				return nil
			})
		}
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
		wait("no caps again", http.StatusOK, http.StatusCreated, http.StatusNotFound)
	})
	wait("no caps", http.StatusOK, http.StatusCreated, http.StatusNotFound)
	for _, step := range []struct {
		policy            string
		get, post, stream int
	}{
		{"readOnly: true", http.StatusOK, http.StatusForbidden, http.StatusForbidden},
		{"readOnly: perhaps", http.StatusForbidden, http.StatusForbidden, http.StatusForbidden},
		{"noStreams: true", http.StatusOK, http.StatusCreated, http.StatusForbidden},
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if _, err := owner.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: ownerpolicy.ConfigMap}, Data: map[string]string{ownerpolicy.Key: step.policy},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		wait("policy "+step.policy, step.get, step.post, step.stream)
	}
}
