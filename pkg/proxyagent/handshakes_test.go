package proxyagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestWaitForOwnCertificate has an agent start with the certificate that upstream's
// agent left.
func TestWaitForOwnCertificate(t *testing.T) {
	ca := pkitest.NewCA(t, "agents")
	files := func(name string) pki.Files {
		return pkitest.Issue(t, filepath.Join(t.TempDir(), "tls"), ca, pki.Leaf{CommonName: name, Client: true}, ca)
	}
	for _, tc := range []struct {
		name, cluster, begins string
		comes                 time.Duration // the new one; 0 for never
		wantErr               string
		want                  time.Duration
	}{
		{"its own", "c", identity.AgentCommonName("c"), 0, "", 0},
		{"upstream's, and then its own", "c", "open-cluster-management:cluster-proxy:addon-agent", time.Second, "", time.Second},
		{"upstream's for good", "c", "open-cluster-management:cluster-proxy:addon-agent", 0, "an earlier release", ownCertificateWait},
		{"another cluster's", "c", identity.AgentCommonName("d"), 0, "an earlier release", ownCertificateWait},
		{"a plain agent", "", "anything", 0, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			first, second := files(tc.begins), files(identity.AgentCommonName(tc.cluster))
			synctest.Test(t, func(t *testing.T) {
				source := pki.NewReloader(first)
				if err := source.Load(); err != nil {
					t.Fatal(err)
				}
				if tc.comes > 0 {
					time.AfterFunc(tc.comes-time.Millisecond, func() {
						for _, pair := range [][2]string{{second.Cert, first.Cert}, {second.Key, first.Key}} {
							content, err := os.ReadFile(pair[0])
							if err == nil {
								err = os.WriteFile(pair[1], content, 0o600)
							}
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				began := time.Now()
				err := waitForOwnCertificate(t.Context(), source, tc.cluster)
				if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("got %v, want an error with %q", err, tc.wantErr)
				}
				if took := time.Since(began); took != tc.want {
					t.Errorf("it took %s, want %s", took, tc.want)
				}
			})
		})
	}
}
