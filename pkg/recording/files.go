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
func (d *folder) add(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[path] = &stored{own: true, open: true, changed: time.Now()}
}

// closed is called when a file is closed.
func (d *folder) closed(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.files[path]; f != nil {
		f.open, f.changed = false, time.Now()
	}
}

// reserve counts bytes that are about to be written, and makes room for them.
func (d *folder) reserve(path string, n int64) error {
	d.mu.Lock()
	if f := d.files[path]; f != nil {
		f.size += n
	}
	d.used += n
	d.metrics.Stored.Set(float64(d.used))
	over := d.used - d.maxTotal
	d.mu.Unlock()
	if over <= 0 {
		return nil
	}
	d.removeOldest(over)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used <= d.maxTotal {
		return nil
	}
	d.take(path, n)
	return ErrFull
}

// release counts bytes that were not written.
func (d *folder) release(path string, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.take(path, n)
}

// take is release for a caller who holds mu.
func (d *folder) take(path string, n int64) {
	if f := d.files[path]; f != nil {
		f.size -= n
	}
	d.used -= n
	d.metrics.Stored.Set(float64(d.used))
}

// removeOldest removes files until at least n bytes are free, the oldest first. It reports
// whether there was one.
func (d *folder) removeOldest(n int64) bool {
	now := time.Now()
	d.mu.Lock()
	var paths []string
	for file, f := range d.files {
		if f.removable(now) {
			paths = append(paths, file)
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return d.files[a].changed.Compare(d.files[b].changed) })
	var victims []string
	for n += d.maxTotal / roomBeside; n > 0 && len(paths) > 0; paths = paths[1:] {
		n -= d.files[paths[0]].size
		victims = append(victims, paths[0])
	}
	d.mu.Unlock()
	removed := false
	for _, file := range victims {
		if d.remove(file) {
			d.metrics.Removed.WithLabelValues(bySize).Inc()
			removed = true
		}
	}
	return removed
}

// remove removes a file. It reports whether it is gone.
func (d *folder) remove(file string) bool {
	err := errors.New("no recording")
	if ours(file) {
		err = d.unlink(file)
	}
	gone := err == nil || errors.Is(err, fs.ErrNotExist)
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[file]
	switch {
	case f == nil:
	case gone:
		delete(d.files, file)
		d.used -= f.size
		d.metrics.Stored.Set(float64(d.used))
	default:
		f.stuck = true
	}
	return gone
}

func (d *folder) unlink(file string) error {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Remove(file)
}

// count looks at all files, and removes those that are too old.
func (d *folder) count() {
	root, err := os.OpenRoot(d.dir)
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
	for _, file := range d.counted(found, now) {
		if d.remove(file) {
			d.metrics.Removed.WithLabelValues(byAge).Inc()
		}
	}
	d.mu.Lock()
	over := d.used - d.maxTotal
	d.mu.Unlock()
	if over > 0 {
		d.removeOldest(over)
	}
}

// counted notes what was found, and returns what is too old.
func (d *folder) counted(found map[string]fs.FileInfo, now time.Time) (old []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for file, f := range d.files {
		if found[file] == nil && !f.open {
			delete(d.files, file)
		}
	}
	for file, info := range found {
		f := d.files[file]
		if f == nil {
			f = &stored{}
			d.files[file] = f
		}
		f.stuck = false
		if !f.open {
			f.size, f.changed = info.Size(), info.ModTime()
		}
		if f.removable(now) && now.Sub(f.changed) > d.maxAge {
			old = append(old, file)
		}
	}
	d.used = 0
	for _, f := range d.files {
		d.used += f.size
	}
	d.metrics.Stored.Set(float64(d.used))
	return old
}
