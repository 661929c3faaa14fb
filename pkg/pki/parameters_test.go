package pki

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTLSProfile(t *testing.T) {
	ecdhe := tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
	for _, test := range []struct {
		version, suites string
		want            TLSParameters
	}{
		{"", "", TLSParameters{}},
		{"VersionTLS13", "", TLSParameters{MinVersion: tls.VersionTLS13}},
		{"TLSv1.2\n", "", TLSParameters{MinVersion: tls.VersionTLS12}},
		// OpenShift's profile "Old", and "Intermediate" with a suite that Go does not have.
		{"VersionTLS10", "TLS_RSA_WITH_3DES_EDE_CBC_SHA,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
			TLSParameters{MinVersion: tls.VersionTLS12, CipherSuites: []uint16{ecdhe}}},
		{"VersionTLS12", " TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 , TLS_DHE_RSA_WITH_AES_128_GCM_SHA256,",
			TLSParameters{MinVersion: tls.VersionTLS12, CipherSuites: []uint16{ecdhe}}},
	} {
		got, err := parseTLSProfile(test.version, test.suites)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("parseTLSProfile(%q, %q): %v (-want +got):\n%s", test.version, test.suites, err, diff)
		}
	}
	for _, bad := range [][2]string{{"SSLv3", ""}, {"1.3", ""}, {"VersionTLS12", "TLS_RSA_WITH_RC4_128_SHA"}, {"", "none"}} {
		if got, err := parseTLSProfile(bad[0], bad[1]); err == nil || !strings.Contains(err.Error(), "TLS") && !strings.Contains(err.Error(), "cipherSuites") {
			t.Errorf("parseTLSProfile%q = %v, %v; want an error", bad, got, err)
		}
	}
}

// TestTLSProfileIsReloaded follows a ConfigMap through its life. Neither side
// is made anew, so a change needs no restart.
func TestTLSProfileIsReloaded(t *testing.T) {
	ca := testCA(t, "ca")
	files := filesOf(t, t.TempDir(), ca, Leaf{CommonName: "both", DNSNames: []string{"server"}, Server: true, Client: true}, ca)
	files.TLSProfile = filepath.Join(t.TempDir(), "absent", "profile")
	source := load(t, files)
	server := source.ServerConfig(tls.RequireAndVerifyClientCert)
	old := func() error { // a client that has nothing newer than TLS 1.2
		config := source.ClientConfig("server")
		config.MinVersion, config.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		_, _, err := handshake(t, server, config)
		return err
	}
	set := func(version, suites string) error {
		if err := os.MkdirAll(files.TLSProfile, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"minTLSVersion": version, "cipherSuites": suites} {
			if err := os.WriteFile(filepath.Join(files.TLSProfile, name), []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return source.Load()
	}
	if err := old(); err == nil {
		t.Error("TLS 1.2 is spoken without a profile that allows it")
	}
	if got := source.ClientConfig("server").MinVersion; got != tls.VersionTLS13 {
		t.Errorf("a dialer's least version is %x without a profile", got)
	}
	if err := set("VersionTLS12", ""); err != nil {
		t.Fatal(err)
	}
	if err := old(); err != nil {
		t.Errorf("TLS 1.2 is not spoken although the profile allows it: %v", err)
	}
	if got := source.ClientConfig("server").MinVersion; got != tls.VersionTLS12 {
		t.Errorf("a dialer's least version is %x, the profile's is 1.2", got)
	}
	if err := set("VersionTLS12", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"); err != nil {
		t.Fatal(err)
	}
	if state, _, err := handshake(t, server, withMax(source.ClientConfig("server"), tls.VersionTLS12)); err != nil || state.CipherSuite != tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 {
		t.Errorf("cipher suite %x, %v; want the profile's", state.CipherSuite, err)
	}
	if err := set("TLS 1.2 please", ""); err == nil || !strings.Contains(err.Error(), files.TLSProfile) {
		t.Errorf("a broken profile is loaded with %v, want an error that names its folder", err)
	}
	if err := old(); err != nil {
		t.Errorf("a broken profile changed what is spoken: %v", err)
	}
	if err := os.RemoveAll(files.TLSProfile); err != nil {
		t.Fatal(err)
	}
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	if err := old(); err == nil {
		t.Error("TLS 1.2 is spoken after the profile that allowed it was deleted")
	}
}

func withMax(config *tls.Config, version uint16) *tls.Config {
	config.MaxVersion = version
	return config
}

func TestFlagsGoBeforeTheProfile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "minTLSVersion"), []byte("VersionTLS12"), 0o600); err != nil {
		t.Fatal(err)
	}
	source := NewReloader(Files{TLSProfile: dir})
	source.TLS.MinVersion = tls.VersionTLS13
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	if got := source.ClientConfig("server").MinVersion; got != tls.VersionTLS13 {
		t.Errorf("the least version is %x, the flag's is 1.3", got)
	}
}

// TestBrokenProfileAtStart begins with the strictest there is.
func TestBrokenProfileAtStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "minTLSVersion"), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	source := load(t, Files{TLSProfile: dir})
	if got := source.ClientConfig("server").MinVersion; got != tls.VersionTLS13 {
		t.Errorf("the least version is %x, want TLS 1.3", got)
	}
}
