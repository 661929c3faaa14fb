package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

// tapesToken is what the proxy API shows to the Service of recordings.
const tapesToken = "token-of-the-tapes"

// TestRecordingsAtService has recordings go to a Service, by the chart's values. Users run commands
// by SPDY and WebSocket, and what they saw is compared with the replayed recordings. Then the Service
// goes while they have shells open, another one that has no certificate of its CA is in its
// place, and it comes back, with both policies. It replaces the proxy API's pods.
func TestRecordingsAtService(t *testing.T) {
	installed.NeedLab(t, "installs the chart with other values, and reads the proxy API's metrics and its log")
	if onNodes {
		t.Skip("the Service is a process of this machine, which pods on nodes do not reach")
	}
	plugin, tapes := buildPlugin(t), newTapes(t)
	const secret = "e2e-tapes"
	secrets := installed.Hub.CoreV1().Secrets(installed.Namespace)
	ca, err := os.ReadFile(tapes.own.CA)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}, Data: map[string][]byte{"ca.crt": ca, "token": []byte(tapesToken + "\n")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = secrets.Delete(context.Background(), secret, metav1.DeleteOptions{}) })
	t.Cleanup(func() { installed.UpgradeProxyAPI(context.Background(), t) })
	for _, test := range []struct {
		name   string
		closed bool
	}{{"the session goes on", false}, {"fail closed", true}} {
		t.Run(test.name, func(t *testing.T) {
			installed.UpgradeProxyAPI(t.Context(), t, "proxyAPI.recording.service.url=https://"+tapes.address+"/tapes", "proxyAPI.recording.service.secret="+secret,
				"proxyAPI.recording.failClosed="+strconv.FormatBool(test.closed))
			replicas := proxyAPIReplicas(t)
			if len(replicas) != 1 {
				t.Fatalf("replicas are %v, want one", replicas)
			}
			breakService(t, tapes, plugin, &failing{t: t, closed: test.closed, replica: replicas[0]})
		})
	}
}

// breakService stops the Service that a replica has, and starts it again.
func breakService(t *testing.T, s *tapes, plugin string, f *failing) {
	const gone = "the Service of recordings cannot be reached"
	stop := s.start(t, s.own)
	wantRecorded(t, plugin, f.replica, func() []string { return s.files(t) })
	shells := f.openShells()
	stop()
	f.wantShells(shells, gone)
	f.command("while it is gone", gone)

	stop = s.start(t, s.other)
	before, logged := len(s.files(t)), len(f.log())
	f.command("while another one is in its place", gone)
	if said := f.log()[logged:]; !strings.Contains(said, "certificate") {
		t.Errorf("the log says %q, want that it is the certificate", said)
	}
	if now := len(s.files(t)); now != before {
		t.Errorf("one with a certificate of another CA has got %d recordings", now-before)
	}
	stop()

	stop = s.start(t, s.own)
	f.command("when it is there again", "")
	wantRecorded(t, plugin, f.replica, func() []string { return s.files(t) })
	stop()
}

// tapes are a Service that keeps recordings in a folder.
type tapes struct {
	dir, address string
	// own is its certificate, and other that of another CA for the same address.
	own, other pki.Files
}

func newTapes(t *testing.T) *tapes {
	t.Helper()
	dir := t.TempDir()
	leaf := pki.Leaf{CommonName: "tapes", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}
	ca, other := pkitest.NewCA(t, "tapes"), pkitest.NewCA(t, "other")
	return &tapes{
		dir: filepath.Join(dir, "tapes"), address: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Take(t))),
		own: pkitest.Issue(t, filepath.Join(dir, "own"), ca, leaf, ca), other: pkitest.Issue(t, filepath.Join(dir, "other"), other, leaf, other),
	}
}

// start serves with a certificate until it is stopped, or the test ends. To stop it breaks
// connections.
func (s *tapes) start(t *testing.T, with pki.Files) (stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(tls.NewListener(listener, pkitest.Load(t, with).ServerConfig(tls.NoClientCert)))
	}()
	stop = func() {
		if server != nil {
			server.Close()
			<-ended
			server = nil
		}
	}
	t.Cleanup(stop)
	return stop
}

// ServeHTTP keeps what has come of a recording that breaks off.
func (s *tapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, below := strings.CutPrefix(r.URL.Path, "/tapes/")
	if r.Method != http.MethodPut || !below || !filepath.IsLocal(name) || r.Header.Get("Authorization") != "Bearer "+tapesToken {
		http.Error(w, "recordings are put below /tapes/ with the token", http.StatusForbidden)
		return
	}
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		http.Error(w, err.Error(), http.StatusPreconditionFailed)
		return
	}
	_, copyErr := io.Copy(file, r.Body)
	if err := file.Close(); err != nil || copyErr != nil {
		http.Error(w, "it is not kept", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (s *tapes) files(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "*", "*.cast"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}
