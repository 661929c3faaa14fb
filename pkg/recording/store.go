package recording

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// watchEvery is how often it is looked after volumes that hang, and checkEvery after files
	// that are gone.
	watchEvery = time.Second
	checkEvery = 10 * time.Second
	// maxOpening is how many files are opened at a time.
	maxOpening = 16
	// endTimeout is how long recordings may take to end when the process does.
	endTimeout = 5 * time.Second
)

// Options say where recordings are, and how many.
type Options struct {
	// Dir is a folder on a volume.
	Dir string
	// Service gets the recordings if it is not nil, and there is no folder then.
	Service *Service
	// MaxFile bounds one recording, in bytes.
	MaxFile int64
	// MaxTotal bounds all files of the folder, and MaxAge how long they are kept.
	MaxTotal int64
	MaxAge   time.Duration
	// FailClosed has sessions wait for the volume or the Service, rather than lose what is recorded.
	FailClosed bool
}

// Store has the recordings that are being written.
type Store struct {
	options Options
	metrics Metrics
	place   place
	opening chan struct{}

	mu   sync.Mutex
	open map[*Recording]struct{}
	// idle is closed when the last recording has ended, if somebody waits for that.
	idle chan struct{}
}

// NewStore does no I/O.
func NewStore(o Options, m Metrics) *Store {
	s := &Store{options: o, metrics: m, opening: make(chan struct{}, maxOpening), open: map[*Recording]struct{}{}}
	if o.Service != nil {
		s.place = newUploads(o.Service, m.Written)
	} else {
		s.place = newFolder(o.Dir, o.MaxTotal, o.MaxAge, m)
	}
	return s
}

// Run looks after the recordings until ctx is done, and waits for those that end.
func (s *Store) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { wait.Until(s.watch, watchEvery, ctx.Done()) })
	loops.Go(func() { wait.Until(s.check, checkEvery, ctx.Done()) })
	loops.Go(func() { s.place.run(ctx) })
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

// Open begins the recording of a session. Once it does not record any more, failed is called
// with the reason, by any goroutine. The session's name must be one that no user has chosen.
func (s *Store) Open(ctx context.Context, session Session, failed func(error)) (*Recording, error) {
	select {
	case s.opening <- struct{}{}:
	default:
		return nil, errStalled
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
		return o.r, o.err
	case <-ctx.Done():
		return nil, errStalled
	}
}

// create begins a recording, with its header.
func (s *Store) create(session Session, failed func(error)) (*Recording, error) {
	began := time.Now()
	line, err := session.header(began)
	if err != nil {
		return nil, err
	}
	at := began.UTC()
	r := &Recording{
		path:       path.Join(at.Format(dayFormat), at.Format(timeFormat)+"-"+session.Name+extension),
		failClosed: s.options.FailClosed, maxFile: s.options.MaxFile, lostBytes: s.metrics.Lost,
		began: began, failed: failed, done: s.done, more: make(chan struct{}, 1),
	}
	if !ours(r.path) {
		return nil, fmt.Errorf("the name of the session %q is none for a recording", session.Name)
	}
	if r.to, err = s.place.create(r.path, session.owner()); err != nil {
		return nil, err
	}
	n, err := r.to.Write(line)
	if err != nil {
		if !r.to.discard() {
			_ = r.to.close() // it has failed already
		}
		return nil, err
	}
	r.written = int64(n)
	s.mu.Lock()
	s.open[r] = struct{}{}
	s.mu.Unlock()
	s.metrics.Open.Inc()
	go r.run()
	return r, nil
}

// done is called when a recording has ended.
func (s *Store) done(r *Recording) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, r)
	s.metrics.Open.Dec()
	if s.idle != nil && len(s.open) == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// watch has recordings fail whose volume hangs.
func (s *Store) watch() {
	if !s.options.FailClosed {
		return // these drop what they get
	}
	now := time.Now()
	for _, r := range s.recordings() {
		if r.stalled(now) {
			r.fail(errStalled)
		}
	}
}

// check has recordings fail that are not there any more.
func (s *Store) check() {
	for _, r := range s.recordings() {
		if err := r.to.check(); err != nil {
			r.fail(err)
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
