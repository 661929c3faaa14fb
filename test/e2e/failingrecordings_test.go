package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/scrape"
)

// failing is a replica of the proxy API whose recordings fail, and what there is to see of it.
type failing struct {
	t       *testing.T
	closed  bool
	replica proxyAPIReplica
}

// failures is the metric, by what became of the session.
func (f *failing) failures(session string) float64 {
	f.t.Helper()
	n, err := scrape.Metric(f.t.Context(), f.replica.health, "cluster_proxy_api_recordings_failed_total{", fmt.Sprintf("session=%q", session))
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

// log is what the proxy API has said so far.
func (f *failing) log() string {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(installed.Lab.LogDir(), "*_"+f.replica.name+"_*.log"))
	if err != nil || len(files) != 1 {
		f.t.Fatalf("logs are %v %v, want one", files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		f.t.Fatal(err)
	}
	return string(raw)
}

// command runs one by each protocol. reason is why it cannot be recorded, empty if it can: the
// user reads it if there is no session without a recording, and administrators always.
func (f *failing) command(when, reason string) {
	f.t.Helper()
	outcome := "unrecorded"
	if f.closed {
		outcome = "rejected"
	}
	for name, executor := range suite.ExecutorsWithoutInput(f.t, f.replica.user(), "echo", "hello") {
		failures, logged := f.failures(outcome), len(f.log())
		var out bytes.Buffer
		err := executor.StreamWithContext(f.t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard})
		switch refused := reason != "" && f.closed; {
		case !refused && (err != nil || out.String() != "hello\n"):
			f.t.Errorf("%s, by %s: %q %v, want hello", when, name, out.String(), err)
		case refused && (err == nil || out.Len() > 0 || !strings.Contains(err.Error(), "must be recorded, which is not possible now: "+reason)):
			f.t.Errorf("%s, by %s: %q %v, want it refused with %q", when, name, out.String(), err, reason)
		}
		if reason == "" {
			continue
		}
		if got := f.failures(outcome) - failures; got < 1 {
			f.t.Errorf("%s, by %s: %v failures are counted", when, name, got)
		}
		if said := f.log()[logged:]; !strings.Contains(said, "A session cannot be recorded") || !strings.Contains(said, reason) || !strings.Contains(said, outcome) {
			f.t.Errorf("%s, by %s: the log says %q, want %s because of %q", when, name, said, outcome, reason)
		}
	}
}

// openShells opens one by each protocol. They say 6 kB a second each, which fills the 1 MiB of
// brokenVolume in a minute: files that are gone are noticed before, each 10 s.
func (f *failing) openShells() map[string]chan error {
	f.t.Helper()
	ended := map[string]chan error{}
	for name, executor := range suite.ExecutorsWithoutInput(f.t, f.replica.user(), "sh", "-c", "while true; do head -c 600 /dev/zero | tr '\\0' x; echo; sleep 0.1; done") {
		began, end := make(chan struct{}), make(chan error, 1)
		go func() {
			end <- executor.StreamWithContext(f.t.Context(), remotecommand.StreamOptions{Stdout: &firstWrite{began: began}, Stderr: io.Discard})
		}()
		mustBegin(f.t, "the shell by "+name, began, end)
		ended[name] = end
	}
	return ended
}

// wantShells waits until the shells that are open are not recorded any more. They end with the
// reason, or go on until an administrator ends them.
func (f *failing) wantShells(ended map[string]chan error, reason string) {
	f.t.Helper()
	if f.closed {
		for name, end := range ended {
			if err := <-end; err == nil || !strings.Contains(err.Error(), "ended because it cannot be recorded any more: "+reason) {
				f.t.Errorf("the shell by %s ended with %v, want %q", name, err, reason)
			}
		}
		// Users are told first.
		suite.Eventually(f.t, "the shells' recordings to be closed", func() error {
			n, err := scrape.Metric(f.t.Context(), f.replica.health, "cluster_proxy_api_recordings_open")
			if err == nil && n > 0 {
				err = fmt.Errorf("%v are open", n)
			}
			return err
		})
		return
	}
	logged := 0
	suite.Eventually(f.t, "shells that are not recorded", func() error {
		if logged = strings.Count(f.log(), reason); logged < len(ended) {
			return fmt.Errorf("the log names %q %d times", reason, logged)
		}
		return nil
	})
	for name, end := range ended {
		select {
		case err := <-end:
			f.t.Errorf("the shell by %s ended with %v, want it to go on", name, err)
		default:
		}
	}
	for _, session := range sessionsBy(f.t, nil) {
		if err := installed.Hub.RESTClient().Delete().AbsPath(sessionsPath, session.Name).Do(f.t.Context()).Error(); err != nil {
			f.t.Errorf("ending %s: %v", session.Name, err)
		}
	}
	for name, end := range ended {
		if err := <-end; err == nil || !strings.Contains(err.Error(), "ended by an administrator") {
			f.t.Errorf("the shell by %s ended with %v, want that an administrator ended it", name, err)
		}
	}
}
