package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// proxyAPIReplica is a pod of the proxy API: where it is reached, also for metrics, and its recordings.
type proxyAPIReplica struct{ name, address, health, recordings string }

// proxyAPIReplicas are the pods of the proxy API in a lab without nodes.
func proxyAPIReplicas(t *testing.T) (found []proxyAPIReplica) {
	t.Helper()
	kind := installed.Kind(t, suite.RecordedCluster, "proxy API")
	names, err := kind.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		pod, err := kind.Client.CoreV1().Pods(kind.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		address, err := installed.Lab.PodAddress("hub", pod.UID, 9092)
		if err != nil {
			t.Fatal(err)
		}
		health, err := installed.Lab.PodAddress("hub", pod.UID, 8000)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, proxyAPIReplica{name, address, health, installed.Lab.PodVolume("hub", pod.UID, "recordings")})
	}
	return found
}

// user reaches the recorded cluster by this replica, as the hub's user.
func (r proxyAPIReplica) user() *rest.Config {
	cfg := installed.ThroughProxyAPI(suite.RecordedCluster)
	cfg.BearerToken = installed.HubToken
	cfg.Host = strings.Replace(cfg.Host, installed.ProxyAPI, r.address, 1)
	return cfg
}

func (r proxyAPIReplica) files(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(r.recordings + "/*/*.cast")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// replay plays a recording back, when it is complete.
func replay(t *testing.T, plugin, file string, args ...string) (out, errs string) {
	t.Helper()
	suite.Eventually(t, "a complete recording", func() error {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), plugin, append([]string{"replay", file}, args...)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		out, errs = stdout.String(), stderr.String()
		return err
	})
	return out, errs
}

// TestRecordings has a user run commands by SPDY and WebSocket at each of two replicas, and compares
// what they saw with the replayed recordings. Then sessions of each kind are ended from the
// replica that does not have them. It runs a second replica of the proxy API.
func TestRecordings(t *testing.T) {
	installed.NeedLab(t, "reads the files of pods")
	if onNodes {
		t.Skip("reads the files of pods that are processes of this machine")
	}
	installed.ScaleProxyAPI(t, 2)
	replicas, plugin := proxyAPIReplicas(t), buildPlugin(t)
	if len(replicas) != 2 {
		t.Fatalf("replicas are %v, want 2", replicas)
	}
	for _, replica := range replicas {
		wantRecorded(t, plugin, replica, func() []string { return replica.files(t) })
	}
	endFromElsewhere(t, replicas[0], replicas[1], plugin)
}

// wantRecorded has a user run a command by each protocol, and compares what they saw with the replayed
// recording, which is the one that is new among these.
func wantRecorded(t *testing.T, plugin string, replica proxyAPIReplica, files func() []string) {
	t.Helper()
	for name, executor := range suite.ExecutorsWithoutInput(t, replica.user(), "sh", "-c", "head -c 200000 /dev/urandom; echo no >&2; printf 'Gr\\303\\274\\303\\237e \\033[1m\\377'") {
		before := files()
		var out, errs bytes.Buffer
		if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fresh := slices.DeleteFunc(files(), func(file string) bool { return slices.Contains(before, file) })
		if len(fresh) != 1 {
			t.Fatalf("%s: new recordings are %q, want one", name, fresh)
		}
		gotOut, gotErrs := replay(t, plugin, fresh[0], "--raw")
		if out.Len() < 200000 || gotOut != out.String() || gotErrs != errs.String() {
			t.Errorf("%s: the recording has %d bytes and %q, want the %d and %q that the user saw", name, len(gotOut), gotErrs, out.Len(), errs.String())
		}
	}
}

// endFromElsewhere has sessions of each kind at one replica, and ends them by the other one.
func endFromElsewhere(t *testing.T, here, there proxyAPIReplica, plugin string) {
	before, files := sessionsBy(t, nil), here.files(t)
	ended := openAll(t, here)
	want := []string{"attach", "connect", "exec", "port-forward"}
	var kinds []string
	own, elsewhere := asAdministrator(t, here), asAdministrator(t, there)
	var open map[string]v1alpha1.Session
	suite.Eventually(t, "four sessions", func() error {
		if open = sessionsBy(t, before); len(open) < len(ended) {
			return fmt.Errorf("sessions are %+v", open)
		}
		return nil
	})
	for _, session := range open {
		kinds = append(kinds, session.Status.Kind)
		if session.Status.Cluster != suite.RecordedCluster || !strings.HasSuffix(session.Status.User, ":"+suite.HubUser) {
			t.Errorf("session is %+v, want %s's", session.Status, suite.HubUser)
		}
		suite.Eventually(t, "ending "+session.Status.Kind, func() error {
			// A replica that is new is found by the others within seconds: until then they do not know its sessions.
			err := elsewhere.RESTClient().Delete().AbsPath(sessionsPath, session.Name).Do(t.Context()).Error()
			if apierrors.IsNotFound(err) && apierrors.IsNotFound(own.RESTClient().Get().AbsPath(sessionsPath, session.Name).Do(t.Context()).Error()) {
				return nil // the answer to a try before came too late
			}
			return err
		})
	}
	if slices.Sort(kinds); !slices.Equal(kinds, want) {
		t.Fatalf("sessions are %q, want %q", kinds, want)
	}
	for kind, end := range ended {
		var err error
		suite.Eventually(t, "the end of "+kind, func() error {
			select {
			case err = <-end:
				return nil
			default:
				return errors.New("it goes on")
			}
		})
		if kind != "connect" && kind != "port-forward" && (err == nil || !strings.Contains(err.Error(), "ended by an administrator")) {
			t.Errorf("%s ended with %v, want that an administrator ended it", kind, err)
		}
	}
	for _, file := range here.files(t) {
		if slices.Contains(files, file) {
			continue
		}
		if _, errs := replay(t, plugin, file, "--speed=1e6"); !strings.Contains(errs, ": ended by an administrator\n") || !strings.Contains(errs, " of cluster "+suite.RecordedCluster) {
			t.Errorf("the recording says %q, want whose it is, and that an administrator ended it", errs)
		}
	}
}

// asAdministrator is the hub's administrator at a replica.
func asAdministrator(t *testing.T, at proxyAPIReplica) *kubernetes.Clientset {
	t.Helper()
	admin := rest.CopyConfig(installed.HubConfig())
	admin.Host, admin.CAFile, admin.CAData = "https://"+at.address, "", installed.HubCA
	return suite.Clientset(t, admin)
}

// openAll opens a session of each kind that leads to a cluster. The result has how each ends.
func openAll(t *testing.T, at proxyAPIReplica) map[string]chan error {
	t.Helper()
	ended := map[string]chan error{"attach": make(chan error, 1), "port-forward": make(chan error, 1), "connect": make(chan error, 1)}
	cfg := at.user()
	ended["exec"] = openShell(t, cfg, "websocket")
	client := suite.Clientset(t, cfg)
	pod := suite.WebPod(t, client)
	request := func(subresource string) *rest.Request {
		return client.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(pod).SubResource(subresource)
	}
	attach, err := remotecommand.NewSPDYExecutor(cfg, http.MethodPost, request("attach").Param("stdout", "true").Param("stderr", "true").URL())
	if err != nil {
		t.Fatal(err)
	}
	attached := make(chan struct{})
	go func() {
		ended["attach"] <- attach.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &firstWrite{began: attached}, Stderr: io.Discard})
	}()
	transport, upgrader, err := spdy.RoundTripperFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, request("portforward").URL())
	ready := make(chan struct{})
	forwarder, err := portforward.New(dialer, []string{"0:8080"}, t.Context().Done(), ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended["port-forward"] <- forwarder.ForwardPorts() }()
	go func() { ended["connect"] <- connectTo(t.Context(), at) }()
	// A user whose streams are not open yet cannot be told why a session ends.
	mustBegin(t, "attach", attached, ended["attach"])
	mustBegin(t, "port-forward", ready, ended["port-forward"])
	return ended
}

// connectTo has a connection to the kube-apiserver by CONNECT until it ends.
func connectTo(ctx context.Context, at proxyAPIReplica) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(installed.HubCA)
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots}}).DialContext(ctx, "tcp", at.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT %[1]s:443 HTTP/1.1\r\nHost: %[1]s:443\r\nProxy-Authorization: Bearer %[2]s\r\n\r\n", suite.RecordedCluster, installed.HubToken)
	if _, err := io.Copy(io.Discard, conn); err != nil {
		return err
	}
	return errors.New("the connection has ended")
}
