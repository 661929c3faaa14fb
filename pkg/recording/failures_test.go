package recording

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

var eventually = wait.Poll{Every: time.Millisecond, For: time.Minute}.Until

// TestFailures has volumes that are full and gone.
func TestFailures(t *testing.T) {
	device := func(t *testing.T, s *Store, path string) {
		s.folder().openFile = func(root *os.Root, name string) (*os.File, error) {
			file, err := newFile(root, name)
			if err != nil {
				return nil, err
			}
			to, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Skip(err)
			}
			_ = file.Close()
			return to, nil
		}
	}
	t.Run("there is no folder", func(t *testing.T) {
		s := newStore(t, func(o *Options) { o.Dir = filepath.Join(o.Dir, "gone") })
		if _, err := s.Open(t.Context(), Session{Name: randomName()}, nil); err == nil || strings.Contains(err.Error(), s.options.Dir) {
			t.Errorf("error %v, want one without the folder's name", err)
		}
	})
	t.Run("the volume is full", func(t *testing.T) {
		s := newStore(t, asIs)
		device(t, s, "/dev/full")
		if _, err := s.Open(t.Context(), Session{Name: randomName()}, nil); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v, want %v", err, syscall.ENOSPC)
		}
		if left, err := filepath.Glob(s.options.Dir + "/*/*"); err != nil || len(left) > 0 || s.folder().used != 0 {
			t.Errorf("%v is left, %d bytes are used", left, s.folder().used)
		}
	})
	t.Run("the file is full", func(t *testing.T) {
		s := newStore(t, func(o *Options) { o.MaxFile = 8 << 10 })
		r, failed := begin(t, s)
		r.Add(Output, []byte("one"))
		for len(failed) == 0 {
			r.Add(Output, make([]byte, 100))
		}
		s.await(r)
		r.Add(Output, []byte("later"))
		r.Room()
		_, _, end, err := play(t, filepath.Join(s.options.Dir, r.Path()))
		if reason := <-failed; !errors.Is(reason, ErrTooLong) || err != nil || !strings.Contains(end, ErrTooLong.Error()) || len(failed) > 0 {
			t.Errorf("failed with %v, end %q %v, want %v", reason, end, err, ErrTooLong)
		}
		if info, err := os.Stat(filepath.Join(s.options.Dir, r.Path())); err != nil || info.Size() > 8<<10 {
			t.Errorf("the file is %v %v, want at most 8 KiB", info.Size(), err)
		}
		r.Close("x")
	})
	t.Run("the file is gone", func(t *testing.T) {
		s := newStore(t, asIs)
		r, failed := begin(t, s)
		s.check()
		if len(failed) > 0 {
			t.Errorf("failed with %v", <-failed)
		}
		if err := os.RemoveAll(filepath.Join(s.options.Dir, filepath.Dir(r.Path()))); err != nil {
			t.Fatal(err)
		}
		s.check()
		if err := <-failed; !errors.Is(err, errGone) {
			t.Errorf("failed with %v, want %v", err, errGone)
		}
		s.await(r)
	})
	t.Run("the folder is gone", func(t *testing.T) {
		s := newStore(t, asIs)
		r, failed := begin(t, s)
		if err := os.RemoveAll(s.options.Dir); err != nil {
			t.Fatal(err)
		}
		s.check()
		if err := <-failed; err == nil {
			t.Error("it did not fail")
		}
		s.await(r)
	})
}

// TestWhatWaitsIsLost has a volume fail at a write while more waits. All of it is counted.
func TestWhatWaitsIsLost(t *testing.T) {
	s := newStore(t, asIs)
	other := pipe(t, s)
	r, failed := begin(t, s)
	r.Add(Output, make([]byte, 100<<10)) // more than a pipe takes
	eventually(t, "it is being written", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.bytes) == 0
	})
	r.Add(Output, make([]byte, 1000))
	r.Add(Input, make([]byte, 100))
	other.Close()
	<-failed
	s.await(r)
	r.Add(Output, make([]byte, 10))
	if want := int64(100<<10 + 1110); r.Lost() != want {
		t.Errorf("%d bytes are counted, want %d", r.Lost(), want)
	}
}

// TestFailureIsToldFirst has a session wait for room when its recording fails: it is ended before it
// goes on.
func TestFailureIsToldFirst(t *testing.T) {
	s := newStore(t, func(o *Options) { o.FailClosed = true })
	other := pipe(t, s)
	var r atomic.Pointer[Recording]
	waits := func() bool {
		r := r.Load()
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.room != nil
	}
	waited, failed := false, make(chan struct{})
	opened, err := s.Open(t.Context(), Session{Name: randomName()}, func(error) { waited = waits(); close(failed) })
	if err != nil {
		t.Fatal(err)
	}
	r.Store(opened)
	opened.Add(Output, make([]byte, 100<<10)) // more than the pipe takes: it is written until that fails
	eventually(t, "it is being written", func() bool {
		opened.mu.Lock()
		defer opened.mu.Unlock()
		return len(opened.bytes) == 0
	})
	over := make(chan struct{})
	go func() {
		defer close(over)
		for opened.Lost() == 0 { // which it has when it has failed
			opened.Add(Output, make([]byte, 10<<10))
			opened.Room()
		}
	}()
	eventually(t, "the session waits", waits)
	other.Close()
	<-failed
	if !waited {
		t.Error("the session went on before it could be ended")
	}
	<-over
	s.await(opened)
}

// pipe has files be pipes, of which nobody reads.
func pipe(t *testing.T, s *Store) (other *os.File) {
	t.Helper()
	other, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	s.folder().openFile = func(*os.Root, string) (*os.File, error) { return to, nil }
	return other
}

// TestSlowVolume has a volume that takes nothing for a while.
func TestSlowVolume(t *testing.T) {
	block := make([]byte, 32<<10)
	t.Run("fail closed", func(t *testing.T) {
		s := newStore(t, asIs)
		other := pipe(t, s)
		r, failed := begin(t, s)
		held := make(chan struct{})
		go func() {
			defer close(held)
			for range 100 {
				r.Room()
				r.Add(Output, block)
			}
		}()
		got := make(chan int64)
		go func() {
			n, _ := io.Copy(io.Discard, other)
			got <- n
		}()
		<-held
		r.Close("x")
		s.await(r)
		if n := <-got; n < 100*int64(len(block)) || r.Lost() != 0 || len(failed) > 0 {
			t.Errorf("%d bytes were written, %d lost, want all", n, r.Lost())
		}
	})
	t.Run("a volume that hangs", func(t *testing.T) {
		s := newStore(t, asIs)
		other := pipe(t, s)
		r, failed := begin(t, s)
		full := func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.buffered() > maxBuffered
		}
		for !full() {
			r.Add(Output, block)
		}
		s.watch()
		if len(failed) > 0 {
			t.Errorf("failed at once: %v", <-failed)
		}
		for writing := false; !writing; {
			r.mu.Lock()
			if writing = !r.writing.IsZero(); writing {
				r.writing = time.Now().Add(-stalledAfter)
			}
			r.mu.Unlock()
		}
		s.watch()
		r.Room()
		if err := <-failed; !errors.Is(err, errStalled) {
			t.Errorf("failed with %v, want %v", err, errStalled)
		}
		go func() { _, _ = io.Copy(io.Discard, other) }()
		s.await(r)
	})
	t.Run("fail open", func(t *testing.T) {
		s := newStore(t, func(o *Options) { o.FailClosed = false })
		other := pipe(t, s)
		r, failed := begin(t, s)
		for range 100 {
			r.Room()
			r.Add(Output, block)
		}
		if r.Lost() == 0 || len(failed) > 0 {
			t.Errorf("%d bytes are lost, %d failures, want some and none", r.Lost(), len(failed))
		}
		r.mu.Lock()
		if r.buffered() > maxBuffered {
			t.Errorf("%d bytes are in the buffer, want at most %d", r.buffered(), maxBuffered)
		}
		r.mu.Unlock()
		lost := r.Lost()
		text := make(chan string)
		go func() {
			all, _ := io.ReadAll(other)
			text <- string(all)
		}()
		r.Close("x")
		s.await(r)
		if got := <-text; !strings.Contains(got, fmt.Sprintf(`"l", "stdout %d"`, lost)) || strings.Count(got, `\u0000`)+int(lost) != 100*len(block) {
			t.Errorf("%d bytes are in the file, and %d lost of %d", strings.Count(got, `\u0000`), lost, 100*len(block))
		}
	})
}

// TestOpeningHangs has a volume on which no file can be opened.
func TestOpeningHangs(t *testing.T) {
	s := newStore(t, asIs)
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s.opening = make(chan struct{}, maxOpening)
		s.folder().openFile = func(*os.Root, string) (*os.File, error) {
			<-release
			return nil, os.ErrInvalid
		}
		for range maxOpening {
			go func() {
				if _, err := s.Open(t.Context(), Session{Name: randomName()}, nil); !errors.Is(err, errStalled) {
					t.Errorf("error %v, want %v", err, errStalled)
				}
			}()
		}
		synctest.Wait()
		if _, err := s.Open(t.Context(), Session{Name: randomName()}, nil); !errors.Is(err, errStalled) {
			t.Errorf("error %v, want %v at once", err, errStalled)
		}
		time.Sleep(openTimeout + time.Second)
		close(release)
	})
}
