package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
)

// verbose sets --v=10 until the test ends, and returns what is logged.
func verbose(t *testing.T) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	state := klog.CaptureState()
	t.Cleanup(state.Restore)
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"v": "10", "logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	klog.SetOutput(&out)
	return &out
}

// TestKeysAreNotLogged writes a Secret as the addon manager does with --v=10.
func TestKeysAreNotLogged(t *testing.T) {
	const key = "ZKQXJZKQXJZKQXJZKQXJZKQXJZKQXJ"
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Secret","stringData":{"a":"` + key + `"}}`))
	}))
	defer hub.Close()
	for name, hide := range map[string]func() error{"hidden": hideBodies, "not hidden": func() error { return nil },
		"hidden, JSON": hideBodies, "not hidden, JSON": func() error { return nil }} {
		t.Run(name, func(t *testing.T) {
			out := verbose(t)
			if strings.HasSuffix(name, "JSON") {
				logJSONTo(out)
			}
			if err := hide(); err != nil {
				t.Fatal(err)
			}
			client, err := kubernetes.NewForConfig(&rest.Config{Host: hub.URL})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.CoreV1().Secrets("a").Create(t.Context(), &corev1.Secret{StringData: map[string]string{"key": key}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			klog.Flush()
			if logged := strings.Contains(out.String(), key[:5]); logged != strings.HasPrefix(name, "not hidden") || !strings.Contains(out.String(), "secrets") {
				t.Errorf("%s: a key is logged: %v; %d bytes of logs", name, logged, out.Len())
			}
		})
	}
}

// TestRequestsMayHideFromLogs holds the programs to what package apihandler relies
// on, whatever cli.Run has done before.
func TestRequestsMayHideFromLogs(t *testing.T) {
	state := klog.CaptureState()
	defer state.Restore()
	logs.InitLogs()
	newCommand(io.Discard).PersistentPreRun(nil, nil)
	if logger := klog.FromContext(klog.NewContext(context.Background(), logr.Discard())); logger.GetSink() != nil {
		t.Error("a request cannot hide from the logs")
	}
}
