package browser

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// policies is where Chromium reads what an administrator of the machine has decided.
const policies = "/etc/chromium/policies/managed"

// OpenWithCertificate is Open for a browser that has a client certificate, and sends it to the
// URLs of an origin without asking: a headless one has nobody to ask. Only a policy of the machine says
// that, which root alone may write; without that the test is skipped.
func OpenWithCertificate(t testing.TB, certFile, keyFile, origin string, caFiles ...string) *Page {
	t.Helper()
	needs(t, "chromium", "certutil", "pk12util", "openssl")
	if os.Getuid() != 0 {
		t.Skipf("NOT RUN: a client certificate needs a policy in %s, which root alone may write", policies)
	}
	selectCertificate(t, origin)
	home := t.TempDir()
	trust(t, home, caFiles)
	bundle := filepath.Join(home, "client.p12")
	run(t, "openssl", "pkcs12", "-export", "-in", certFile, "-inkey", keyFile, "-passout", "pass:test", "-name", "client", "-out", bundle)
	run(t, "pk12util", "-d", "sql:"+filepath.Join(home, ".pki", "nssdb"), "-i", bundle, "-W", "test", "-K", "")
	return start(t, home)
}

// selectCertificate writes the policy, until the test ends.
func selectCertificate(t testing.TB, origin string) {
	t.Helper()
	pattern, err := json.Marshal(map[string]any{"pattern": origin, "filter": map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := json.Marshal(map[string]any{"AutoSelectCertificateForUrls": []string{string(pattern)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(policies, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.CreateTemp(policies, "cluster-proxy-test-*.json")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(file.Name()); err != nil {
			t.Errorf("removing the policy: %v", err)
		}
		// Empty folders need not stay; those of others are not empty.
		_ = os.Remove(policies)
		_ = os.Remove(filepath.Dir(policies))
	})
	if err := file.Chmod(0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(policy); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
