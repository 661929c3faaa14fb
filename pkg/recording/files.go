package recording

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"sync"
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
	// maxHeader is how much of a file is read for its header, which has names that users chose.
	maxHeader = 64 << 10
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

// folder is a place on a volume.
type folder struct {
	dir      string
	maxTotal int64
	maxAge   time.Duration
	metrics  Metrics
	// openFile makes a file below a folder.
	openFile func(root *os.Root, path string) (*os.File, error)

	mu    sync.Mutex
	files map[string]*stored // by path
	used  int64
}

func newFolder(dir string, maxTotal int64, maxAge time.Duration, m Metrics) *folder {
	return &folder{dir: dir, maxTotal: maxTotal, maxAge: maxAge, metrics: m, openFile: newFile, files: map[string]*stored{}}
}

func newFile(root *os.Root, path string) (*os.File, error) {
	return root.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// ours reports whether a path is that of a recording.
func ours(file string) bool {
	day, name := path.Split(file)
	return ourDay.MatchString(path.Clean(day)) && ourFile.MatchString(name)
}

// stored is what is known of a file.
type stored struct {
	size    int64
	changed time.Time
	// owner is whose session it has. It is known of files of other processes once they were read.
	owner owner
	read  bool
	// own says that this process made it, open that it writes it, and stuck that it cannot
	// be removed.
	own, open, stuck bool
}

// removable reports whether no process writes the file.
func (f *stored) removable(now time.Time) bool {
	return !f.open && !f.stuck && (f.own || now.Sub(f.changed) > openElsewhere)
}

// add adds a new file.
func (d *folder) add(path string, of owner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[path] = &stored{owner: of, read: true, own: true, open: true, changed: time.Now()}
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
	d.makeRoom(path, over)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used <= d.maxTotal {
		return nil
	}
	d.take(path, n)
	return errFull
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

// makeRoom removes files until at least n bytes are free, for a file that is being written or, if
// path is empty, for none. It reports whether there was one to remove.
func (d *folder) makeRoom(path string, n int64) bool {
	removed := false
	for _, file := range d.victims(path, n+d.maxTotal/roomBeside) {
		if d.remove(file) {
			d.metrics.Removed.WithLabelValues(bySize).Inc()
			removed = true
		}
	}
	return removed
}

// victims are the files that go to make room for n bytes: one after the other the oldest file of the
// owner who has most, and never one of an owner who has less than that of the file at path: much
// output of one user removes that user's recordings, or those of users who have as much.
func (d *folder) victims(path string, n int64) (victims []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, used, removable := time.Now(), map[owner]int64{}, map[owner][]string{}
	for file, f := range d.files {
		used[f.owner] += f.size
		if f.removable(now) {
			removable[f.owner] = append(removable[f.owner], file)
		}
	}
	for _, files := range removable {
		slices.SortFunc(files, func(a, b string) int { return d.files[a].changed.Compare(d.files[b].changed) })
	}
	writer := d.files[path]
	for n > 0 {
		var most owner
		found := false
		for of := range removable {
			if (writer == nil || used[of] >= used[writer.owner]) && (!found || used[of] > used[most]) {
				most, found = of, true
			}
		}
		if !found {
			break
		}
		file := removable[most][0]
		victims = append(victims, file)
		n -= d.files[file].size
		used[most] -= d.files[file].size
		if removable[most] = removable[most][1:]; len(removable[most]) == 0 {
			delete(removable, most)
		}
	}
	return victims
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
	for _, file := range d.counted(found, d.readOwners(root, found), now) {
		if d.remove(file) {
			d.metrics.Removed.WithLabelValues(byAge).Inc()
		}
	}
	d.mu.Lock()
	over := d.used - d.maxTotal
	d.mu.Unlock()
	if over > 0 {
		d.makeRoom("", over)
	}
}

// readOwners reads whose those of the files are that this process does not know: other processes
// made them.
func (d *folder) readOwners(root *os.Root, found map[string]fs.FileInfo) map[string]owner {
	d.mu.Lock()
	var unread []string
	for file, info := range found {
		if f := d.files[file]; (f == nil || !f.read) && info.Size() > 0 {
			unread = append(unread, file)
		}
	}
	d.mu.Unlock()
	owners := map[string]owner{}
	for _, file := range unread {
		opened, err := root.Open(file)
		if err != nil {
			continue // it counts as nobody's
		}
		var of owner
		if reader, err := NewReader(io.LimitReader(opened, maxHeader)); err == nil {
			of = reader.Header.Session.owner()
		}
		owners[file] = of
		_ = opened.Close() // it was only read
	}
	return owners
}

// counted notes what was found, and returns what is too old.
func (d *folder) counted(found map[string]fs.FileInfo, owners map[string]owner, now time.Time) (old []string) {
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
		if of, ok := owners[file]; ok {
			f.owner, f.read = of, true
		}
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
