package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"

	"open-cluster-management.io/cluster-proxy/pkg/recording"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/scrape"
)

// TestRecordingsFail has the volume of recordings be full, and then gone, with both policies, while
// users have shells open by SPDY and WebSocket and begin others. It restarts the proxy API.
func TestRecordingsFail(t *testing.T) {
	installed.NeedLab(t, "mounts a small file system for a pod, and reads its metrics and its log")
	if onNodes {
		t.Skip("mounts a small file system for a pod that is a process of this machine")
	}
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: only root may mount a small file system, and a limit of file sizes is no full volume")
	}
	t.Run("the session goes on", func(t *testing.T) { breakVolume(t, false) })
	t.Run("fail closed", func(t *testing.T) {
		installed.AddProxyAPIArguments(t, "--recording-fail-closed=true")
		breakVolume(t, true)
	})
}

// breakVolume breaks the volume of the one replica.
func breakVolume(t *testing.T, closed bool) {
	replicas := proxyAPIReplicas(t)
	if len(replicas) != 1 {
		t.Fatalf("replicas are %v, want one", replicas)
	}
	b := &brokenVolume{t: t, closed: closed, replica: replicas[0]}
	restore := b.spoil()
	unmount := b.mount()
	b.command("before", "")
	b.clear()

	shells := b.openShells()
	b.fill()
	b.wantShells(shells, "the volume of recordings: no space left on device")
	b.clear()
	b.fill()
	b.command("while it is full", "no space left on device")

	if err := os.Remove(filepath.Join(b.replica.recordings, "filler")); err != nil {
		t.Fatal(err)
	}
	b.command("when there is room again", "")
	shells = b.openShells()
	unmount()
	b.wantShells(shells, recording.ErrGone.Error())
	b.command("while it is gone", "not a directory")
	restore()
	b.command("when there is one again", "")
}

type brokenVolume struct {
	t       *testing.T
	closed  bool
	replica proxyAPIReplica
}

// spoil has nothing be written to the folder unless a volume is mounted there: files are where the
// next days' recordings would go. The lab would make a folder anew that is missing.
func (b *brokenVolume) spoil() (restore func()) {
	b.t.Helper()
	var files []string
	for _, day := range []time.Time{time.Now(), time.Now().Add(24 * time.Hour)} {
		file := filepath.Join(b.replica.recordings, day.UTC().Format(time.DateOnly))
		if err := os.RemoveAll(file); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			b.t.Fatal(err)
		}
		files = append(files, file)
	}
	restore = func() {
		for _, file := range files {
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				b.t.Error(err)
			}
		}
		files = nil
	}
	b.t.Cleanup(restore)
	return restore
}

// mount mounts 1 MiB over the folder of recordings.
func (b *brokenVolume) mount() (unmount func()) {
	b.t.Helper()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", b.replica.recordings).CombinedOutput(); err != nil {
		b.t.Skipf("NOT RUN: this machine lets nobody mount: %v: %s", err, out)
	}
	mounted := true
	unmount = func() {
		if !mounted {
			return
		}
		mounted = false
		// Files of it may be open.
		if out, err := exec.Command("umount", "--lazy", b.replica.recordings).CombinedOutput(); err != nil {
			b.t.Errorf("unmounting: %v: %s", err, out)
		}
	}
	b.t.Cleanup(unmount)
	return unmount
}

// clear removes all recordings, which would make room.
func (b *brokenVolume) clear() {
	b.t.Helper()
	for _, file := range b.replica.files(b.t) {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) { // the proxy API may have been first
			b.t.Fatal(err)
		}
	}
}

// fill leaves no byte.
func (b *brokenVolume) fill() {
	b.t.Helper()
	filler, err := os.OpenFile(filepath.Join(b.replica.recordings, "filler"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer filler.Close()
	for _, size := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = filler.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		b.t.Fatalf("filling the volume: %v, want %v", err, syscall.ENOSPC)
	}
}

// failures is the metric, by what became of the session.
func (b *brokenVolume) failures(session string) float64 {
	b.t.Helper()
	n, err := scrape.Metric(b.t.Context(), b.replica.health, "cluster_proxy_api_recordings_failed_total{", fmt.Sprintf("session=%q", session))
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// log is what the proxy API has said so far.
func (b *brokenVolume) log() string {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(installed.Lab.LogDir(), "*_"+b.replica.name+"_*.log"))
	if err != nil || len(files) != 1 {
		b.t.Fatalf("logs are %v %v, want one", files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		b.t.Fatal(err)
	}
	return string(raw)
}

// command runs one by each protocol. reason is why it cannot be recorded, empty if it can: the
// user reads it if there is no session without a recording, and administrators always.
func (b *brokenVolume) command(when, reason string) {
	b.t.Helper()
	outcome := "unrecorded"
	if b.closed {
		outcome = "refused"
	}
	for name, executor := range suite.ExecutorsWithoutInput(b.t, b.replica.user(), "echo", "hello") {
		failures, logged := b.failures(outcome), len(b.log())
		var out bytes.Buffer
		err := executor.StreamWithContext(b.t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard})
		switch refused := reason != "" && b.closed; {
		case !refused && (err != nil || out.String() != "hello\n"):
			b.t.Errorf("%s, by %s: %q %v, want hello", when, name, out.String(), err)
		case refused && (err == nil || out.Len() > 0 || !strings.Contains(err.Error(), "must be recorded, which is not possible now: the volume of recordings: "+reason)):
			b.t.Errorf("%s, by %s: %q %v, want it refused with %q", when, name, out.String(), err, reason)
		}
		if reason == "" {
			continue
		}
		if got := b.failures(outcome) - failures; got < 1 {
			b.t.Errorf("%s, by %s: %v failures are counted", when, name, got)
		}
		if said := b.log()[logged:]; !strings.Contains(said, "A session cannot be recorded") || !strings.Contains(said, reason) || !strings.Contains(said, outcome) {
			b.t.Errorf("%s, by %s: the log says %q, want %s because of %q", when, name, said, outcome, reason)
		}
	}
}

// openShells opens one by each protocol, which has much to say.
func (b *brokenVolume) openShells() map[string]chan error {
	b.t.Helper()
	ended := map[string]chan error{}
	for name, executor := range suite.ExecutorsWithoutInput(b.t, b.replica.user(), "sh", "-c", "while true; do head -c 6000 /dev/zero | tr '\\0' x; echo; sleep 0.1; done") {
		began, end := make(chan struct{}), make(chan error, 1)
		go func() {
			end <- executor.StreamWithContext(b.t.Context(), remotecommand.StreamOptions{Stdout: &firstWrite{began: began}, Stderr: io.Discard})
		}()
		<-began
		ended[name] = end
	}
	return ended
}

// wantShells waits until the shells that are open are not recorded any more. They end with the
// reason, or go on until an administrator ends them.
func (b *brokenVolume) wantShells(ended map[string]chan error, reason string) {
	b.t.Helper()
	if b.closed {
		for name, end := range ended {
			if err := <-end; err == nil || !strings.Contains(err.Error(), "ended because it cannot be recorded any more: "+reason) {
				b.t.Errorf("the shell by %s ended with %v, want %q", name, err, reason)
			}
		}
		return
	}
	logged := 0
	suite.Eventually(b.t, "shells that are not recorded", func() error {
		if logged = strings.Count(b.log(), reason); logged < len(ended) {
			return fmt.Errorf("the log names %q %d times", reason, logged)
		}
		return nil
	})
	for name, end := range ended {
		select {
		case err := <-end:
			b.t.Errorf("the shell by %s ended with %v, want it to go on", name, err)
		default:
		}
	}
	for _, session := range sessionsBy(b.t, nil) {
		if err := installed.Hub.RESTClient().Delete().AbsPath(sessionsPath, session.Name).Do(b.t.Context()).Error(); err != nil {
			b.t.Errorf("ending %s: %v", session.Name, err)
		}
	}
	for name, end := range ended {
		if err := <-end; err == nil || !strings.Contains(err.Error(), "ended by an administrator") {
			b.t.Errorf("the shell by %s ended with %v, want that an administrator ended it", name, err)
		}
	}
}
