package recording

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// watchEvery is how often it is looked after volumes that hang, checkEvery after files that
	// are gone, and countEvery after all files.
	watchEvery = time.Second
	checkEvery = 10 * time.Second
	countEvery = 30 * time.Second
	// openTimeout is how long a user waits for a file, and maxOpening how many are opened at a time.
	openTimeout = 5 * time.Second
	maxOpening  = 16
	// endTimeout is how long recordings may take to end when the process does.
	endTimeout = 5 * time.Second
)

// Options say where recordings are, and how many.
type Options struct {
	// Dir is a folder on a volume.
	Dir string
	// MaxFile and MaxTotal bound one file and all of them, in bytes, and MaxAge how long
	// they are kept.
	MaxFile, MaxTotal int64
	MaxAge            time.Duration
	// FailClosed has sessions wait for the volume, rather than lose what is recorded.
	FailClosed bool
}

// Metrics count for all recordings.
type Metrics struct {
	// Open are recordings that are being written, Stored the bytes of all files.
	Open, Stored prometheus.Gauge
	// Written and Lost are bytes.
	Written, Lost prometheus.Counter
	// Removed are files, by the reason age or size.
	Removed *prometheus.CounterVec
}

// Store is the folder.
type Store struct {
	options Options
	metrics Metrics
	opening chan struct{}
	// openFile makes a file below a folder.
	openFile func(root *os.Root, path string) (*os.File, error)

	mu    sync.Mutex
	files map[string]*stored // by path
	used  int64
	open  map[*Recording]struct{}
	// idle is closed when the last recording has ended, if somebody waits for that.
	idle chan struct{}
}

// NewStore does no I/O.
func NewStore(o Options, m Metrics) *Store {
	return &Store{options: o, metrics: m, opening: make(chan struct{}, maxOpening), openFile: newFile, files: map[string]*stored{}, open: map[*Recording]struct{}{}}
}

func newFile(root *os.Root, path string) (*os.File, error) {
	return root.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// Run looks after the folder until ctx is done, and waits for recordings that end.
func (s *Store) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { every(ctx, watchEvery, s.watch) })
	loops.Go(func() { every(ctx, checkEvery, s.check) })
	loops.Go(func() { every(ctx, countEvery, s.count) })
	<-ctx.Done()
	s.mu.Lock()
	s.idle = make(chan struct{})
	if len(s.open) == 0 {
		close(s.idle)
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(endTimeout):
	}
	ended := make(chan struct{})
	go func() {
		loops.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(endTimeout): // a volume hangs
	}
	return nil
}

func every(ctx context.Context, pause time.Duration, do func()) {
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Open begins the recording of a session. Once it does not record any more, failed is called
// with the reason, by any goroutine. The session's name must be one that no user has chosen.
func (s *Store) Open(ctx context.Context, session Session, failed func(error)) (*Recording, error) {
	select {
	case s.opening <- struct{}{}:
	default:
		return nil, ErrStalled
	}
	type opened struct {
		r   *Recording
		err error
	}
	result := make(chan opened)
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	go func() {
		defer func() { <-s.opening }()
		r, err := s.create(session, failed)
		select {
		case result <- opened{r, err}:
		case <-ctx.Done():
			if err == nil {
				r.Discard()
			}
		}
	}()
	select {
	case o := <-result:
		return o.r, plain(o.err)
	case <-ctx.Done():
		return nil, ErrStalled
	}
}

// plain takes what is within errors of files, which says nothing of paths.
func plain(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return fmt.Errorf("the volume of recordings: %w", of.Err)
	}
	return err
}

// create makes the file, with its header.
func (s *Store) create(session Session, failed func(error)) (*Recording, error) {
	began := time.Now()
	line, err := session.header(began)
	if err != nil {
		return nil, err
	}
	day := began.UTC().Format(dayFormat)
	r := &Recording{store: s, path: path.Join(day, began.UTC().Format(timeFormat)+"-"+session.Name+extension), began: began, failed: failed, more: make(chan struct{}, 1)}
	if !ours(r.path) {
		return nil, fmt.Errorf("the name of the session %q is none for a file", session.Name)
	}
	root, err := os.OpenRoot(s.options.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := root.Mkdir(day, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if r.file, err = s.openFile(root, r.path); err != nil {
		return nil, err
	}
	s.add(r)
	if r.written, err = s.write(r, line); err != nil {
		r.file.Close()
		s.done(r)
		s.remove(r.path)
		return nil, err
	}
	go r.run()
	return r, nil
}

// write writes to the file of a recording, and makes room for it.
func (s *Store) write(r *Recording, p []byte) (written int64, err error) {
	for len(p) > 0 {
		if err := s.reserve(r, int64(len(p))); err != nil {
			return written, err
		}
		n, err := r.file.Write(p)
		written += int64(n)
		p = p[n:]
		s.metrics.Written.Add(float64(n))
		if err != nil {
			s.release(r, int64(len(p)))
			if !errors.Is(err, syscall.ENOSPC) || !s.removeOldest(int64(len(p))) {
				return written, plain(err)
			}
		}
	}
	return written, nil
}

// watch has recordings fail whose volume hangs.
func (s *Store) watch() {
	if !s.options.FailClosed {
		return // these drop what they get
	}
	now := time.Now()
	for _, r := range s.recordings() {
		if r.stalled(now) {
			r.fail(ErrStalled)
		}
	}
}

// check has recordings fail whose file is gone, and says to other processes that it is open.
func (s *Store) check() {
	root, err := os.OpenRoot(s.options.Dir)
	if err == nil {
		defer root.Close()
	}
	now := time.Now()
	for _, r := range s.recordings() {
		if err != nil {
			r.fail(plain(err))
			continue
		}
		there, missing := root.Lstat(r.path)
		own, err := r.file.Stat()
		switch {
		case errors.Is(err, os.ErrClosed):
		case missing != nil || err != nil || !os.SameFile(there, own):
			r.fail(ErrGone)
		default:
			_ = root.Chtimes(r.path, now, now) // what is written does the same
		}
	}
}

func (s *Store) recordings() []*Recording {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Recording, 0, len(s.open))
	for r := range s.open {
		all = append(all, r)
	}
	return all
}
