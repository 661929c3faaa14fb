package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// place writes a file that is as old as asked for, in place or by replacing it.
func place(t *testing.T, path, content string, age time.Duration, replace bool) {
	t.Helper()
	to := path
	if replace {
		to = path + ".new"
	}
	if err := os.WriteFile(to, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	written := time.Now().Add(-age)
	if err := os.Chtimes(to, written, written); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to, path); err != nil {
		t.Fatal(err)
	}
}

// link points the link of a folder at another one, as a kubelet does.
func link(t *testing.T, folder, to string) {
	t.Helper()
	if err := os.Symlink(to, filepath.Join(folder, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")); err != nil {
		t.Fatal(err)
	}
}

// TestFilesAreReadWhenTheyMayHaveChanged counts loads: none of files that stay, one within
// an interval of every kind of change.
func TestFilesAreReadWhenTheyMayHaveChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file, absent, projected := filepath.Join(dir, "file"), filepath.Join(dir, "absent"), filepath.Join(dir, "..data", "key")
		const old = time.Hour
		place(t, file, "one", old, false)
		for _, version := range []string{"a", "b"} {
			if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
				t.Fatal(err)
			}
			place(t, filepath.Join(dir, version, "key"), "key", old, false)
		}
		link(t, dir, "a")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var loads atomic.Int64
		go func() {
			_ = Loop{Interval: time.Second, Paths: []string{file, absent, projected}, Load: func() (bool, error) { loads.Add(1); return false, nil }}.Run(ctx)
		}()
		pass := func(d time.Duration) int64 {
			synctest.Wait()
			before := loads.Load()
			time.Sleep(d)
			synctest.Wait()
			return loads.Load() - before
		}
		if got := pass(30 * time.Second); got != 0 {
			t.Errorf("files that stay are read %d times in 30 s after the first time", got)
		}
		for _, tc := range []struct {
			is     string
			change func()
		}{
			{"written in place", func() { place(t, file, "two", old-time.Minute, false) }},
			{"replaced by one as old and as long", func() { place(t, file, "six", old-time.Minute, true) }},
			{"longer and as old", func() { place(t, file, "seven", old-time.Minute, false) }},
			{"there now", func() { place(t, absent, "now", old, false) }},
			{"gone", func() { _ = os.Remove(absent) }},
			{"projected anew", func() { link(t, dir, "b") }},
		} {
			tc.change()
			if got := pass(time.Second); got != 1 {
				t.Errorf("a file that is %s is read %d times within an interval, want once", tc.is, got)
			}
			if got := pass(10 * time.Second); got != 0 {
				t.Errorf("a file that is %s is read %d times afterwards, want none", tc.is, got)
			}
		}
		// A second write within the same tick of the clock cannot be seen.
		place(t, file, "new", -8*time.Second, false)
		if got := pass(5 * time.Second); got != 5 {
			t.Errorf("a file that is newer than the clock is read %d times in 5 s, want each second", got)
		}
		pass(10 * time.Second)
		if got := pass(2 * trusted); got < 1 || got > 3 {
			t.Errorf("files that stay are read %d times in %s, want about once each %s", got, 2*trusted, trusted)
		}
	})
}
