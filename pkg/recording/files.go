package recording

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"time"
)

const (
	dayFormat  = "2006-01-02"
	timeFormat = "150405"
	extension  = ".cast"
	// openElsewhere is how long after its last change a file may be open in another process.
	openElsewhere = 5 * time.Minute
	// roomBeside is what part of MaxTotal is freed beside what is needed, so that not every
	// write removes a file.
	roomBeside = 50
)

// Reasons why files are removed.
const (
	byAge  = "age"
	bySize = "size"
)

var (
	ourDay  = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)
	ourFile = regexp.MustCompile(`^[0-9]{6}-[0-9a-f]{32}\.cast$`)
)

// ours reports whether a path is that of a recording.
func ours(file string) bool {
	day, name := path.Split(file)
	return ourDay.MatchString(path.Clean(day)) && ourFile.MatchString(name)
}

// stored is what is known of a file.
type stored struct {
	size    int64
	changed time.Time
	// own says that this process made it, open that it writes it, and stuck that it cannot
	// be removed.
	own, open, stuck bool
}

// removable reports whether no process writes the file.
func (f *stored) removable(now time.Time) bool {
	return !f.open && !f.stuck && (f.own || now.Sub(f.changed) > openElsewhere)
}

// add adds a new file.
func (s *Store) add(r *Recording) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[r.path] = &stored{own: true, open: true, changed: r.began}
	s.open[r] = struct{}{}
	s.metrics.Open.Inc()
}

// done is called when a file is closed.
func (s *Store) done(r *Recording) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[r.path]; f != nil {
		f.open, f.changed = false, time.Now()
	}
	delete(s.open, r)
	s.metrics.Open.Dec()
	if s.idle != nil && len(s.open) == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// reserve counts bytes that are about to be written, and makes room for them.
func (s *Store) reserve(r *Recording, n int64) error {
	s.mu.Lock()
	if f := s.files[r.path]; f != nil {
		f.size += n
	}
	s.used += n
	s.metrics.Stored.Set(float64(s.used))
	over := s.used - s.options.MaxTotal
	s.mu.Unlock()
	if over <= 0 {
		return nil
	}
	s.removeOldest(over)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used <= s.options.MaxTotal {
		return nil
	}
	s.take(r, n)
	return ErrFull
}

// release counts bytes that were not written.
func (s *Store) release(r *Recording, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(r, n)
}

// take is release for a caller who holds mu.
func (s *Store) take(r *Recording, n int64) {
	if f := s.files[r.path]; f != nil {
		f.size -= n
	}
	s.used -= n
	s.metrics.Stored.Set(float64(s.used))
}

// removeOldest removes files until at least n bytes are free, the oldest first. It reports
// whether there was one.
func (s *Store) removeOldest(n int64) bool {
	now := time.Now()
	s.mu.Lock()
	var paths []string
	for file, f := range s.files {
		if f.removable(now) {
			paths = append(paths, file)
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return s.files[a].changed.Compare(s.files[b].changed) })
	var victims []string
	for n += s.options.MaxTotal / roomBeside; n > 0 && len(paths) > 0; paths = paths[1:] {
		n -= s.files[paths[0]].size
		victims = append(victims, paths[0])
	}
	s.mu.Unlock()
	removed := false
	for _, file := range victims {
		if s.remove(file) {
			s.metrics.Removed.WithLabelValues(bySize).Inc()
			removed = true
		}
	}
	return removed
}

// remove removes a file. It reports whether it is gone.
func (s *Store) remove(file string) bool {
	err := errors.New("no recording")
	if ours(file) {
		err = s.unlink(file)
	}
	gone := err == nil || errors.Is(err, fs.ErrNotExist)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[file]
	switch {
	case f == nil:
	case gone:
		delete(s.files, file)
		s.used -= f.size
		s.metrics.Stored.Set(float64(s.used))
	default:
		f.stuck = true
	}
	return gone
}

func (s *Store) unlink(file string) error {
	root, err := os.OpenRoot(s.options.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Remove(file)
}

// count looks at all files, and removes those that are too old.
func (s *Store) count() {
	root, err := os.OpenRoot(s.options.Dir)
	if err != nil {
		return // each recording learns it
	}
	defer root.Close()
	now := time.Now()
	found := map[string]fs.FileInfo{}
	days, _ := fs.ReadDir(root.FS(), ".") // what can be read counts
	for _, day := range days {
		if !day.IsDir() || !ourDay.MatchString(day.Name()) {
			continue
		}
		files, _ := fs.ReadDir(root.FS(), day.Name())
		for _, file := range files {
			if info, err := file.Info(); err == nil && info.Mode().IsRegular() && ourFile.MatchString(file.Name()) {
				found[path.Join(day.Name(), file.Name())] = info
			}
		}
		if len(files) == 0 && day.Name() != now.UTC().Format(dayFormat) {
			_ = root.Remove(day.Name()) // another process may have put a file into it
		}
	}
	for _, file := range s.counted(found, now) {
		if s.remove(file) {
			s.metrics.Removed.WithLabelValues(byAge).Inc()
		}
	}
	s.mu.Lock()
	over := s.used - s.options.MaxTotal
	s.mu.Unlock()
	if over > 0 {
		s.removeOldest(over)
	}
}

// counted notes what was found, and returns what is too old.
func (s *Store) counted(found map[string]fs.FileInfo, now time.Time) (old []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for file, f := range s.files {
		if found[file] == nil && !f.open {
			delete(s.files, file)
		}
	}
	for file, info := range found {
		f := s.files[file]
		if f == nil {
			f = &stored{}
			s.files[file] = f
		}
		f.stuck = false
		if !f.open {
			f.size, f.changed = info.Size(), info.ModTime()
		}
		if f.removable(now) && now.Sub(f.changed) > s.options.MaxAge {
			old = append(old, file)
		}
	}
	s.used = 0
	for _, f := range s.files {
		s.used += f.size
	}
	s.metrics.Stored.Set(float64(s.used))
	return old
}
