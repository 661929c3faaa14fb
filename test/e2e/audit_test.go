package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
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

// TestManagedAPIServerSeesTheRequest follows one request by its Audit-ID into the
// audit log of the cluster it was meant for, and into no other. It disturbs
// nothing: it only reads.
func TestManagedAPIServerSeesTheRequest(t *testing.T) {
	installed.NeedLab(t, "reads the kube-apiservers' audit logs")
	for _, cluster := range installed.Clusters {
		t.Run(cluster, func(t *testing.T) {
			cfg := installed.ThroughProxyAPI(cluster)
			client, err := rest.HTTPClientFor(cfg)
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+"/api/v1/namespaces/default/pods", nil)
			if err != nil {
				t.Fatal(err)
			}
			id := uuid.NewString()
			req.Header.Set("Audit-ID", id)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("answered %d, want 200", resp.StatusCode)
			}
			suite.Eventually(t, "the request in the audit log", func() error {
				events, err := auditEvents(cluster, id)
				if err != nil {
					return err
				}
				for _, event := range events {
					if event["requestURI"] == "/api/v1/namespaces/default/pods" {
						return nil
					}
				}
				return fmt.Errorf("%d events with its Audit-ID, none with its path", len(events))
			})
			for _, other := range installed.Clusters {
				if other == cluster {
					continue
				}
				if events, err := auditEvents(other, id); err != nil || len(events) > 0 {
					t.Errorf("%s saw %d events of a request for %s, %v", other, len(events), cluster, err)
				}
			}
		})
	}
}
