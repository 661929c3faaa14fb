package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/recording"
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
	b := &brokenVolume{failing{t: t, closed: closed, replica: replicas[0]}}
	restore := b.spoil()
	unmount := b.mount()
	b.command("before", "")
	b.clear()

	shells := b.openShells()
	b.fill()
	b.wantShells(shells, "the volume of recordings: no space left on device")
	b.clear()
	b.fill()
	b.command("while it is full", "the volume of recordings: no space left on device")

	if err := os.Remove(filepath.Join(b.replica.recordings, "filler")); err != nil {
		t.Fatal(err)
	}
	b.command("when there is room again", "")
	shells = b.openShells()
	unmount()
	b.wantShells(shells, recording.ErrGone.Error())
	b.command("while it is gone", "the volume of recordings: not a directory")
	restore()
	b.command("when there is one again", "")
}

// brokenVolume is the volume of a replica.
type brokenVolume struct{ failing }

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
