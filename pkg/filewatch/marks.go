package filewatch

import (
	"os"
	"time"
)

const (
	// settled is the age from which a file's time tells whether it was written
	// again. Two writes within one tick of a file system's clock have the same time.
	settled = 2 * time.Second
	// trusted is how long what the file system says is believed: some copying
	// programs set times back, and not every network keeps them.
	trusted = time.Minute
)

// marks are what tells versions of files apart without reading them.
type marks struct {
	files []os.FileInfo // of the paths; nil for one that is absent
	since time.Time     // when they were last taken for new
}

// look reports whether the files are those of the last look. It must be called before
// they are read: what changes in between shows at the next look.
func (m *marks) look(paths []string) (same bool) {
	now := time.Now()
	same = len(paths) > 0 && len(paths) == len(m.files) && now.Sub(m.since) < trusted
	if len(m.files) != len(paths) {
		m.files = make([]os.FileInfo, len(paths))
	}
	for i, path := range paths {
		file, err := os.Stat(path)
		if err != nil {
			file = nil
		}
		same = same && sameVersion(m.files[i], file, now)
		m.files[i] = file
	}
	if !same {
		m.since = now
	}
	return same
}

func sameVersion(before, after os.FileInfo, now time.Time) bool {
	if before == nil || after == nil {
		return before == after
	}
	return os.SameFile(before, after) && before.Size() == after.Size() && before.ModTime().Equal(after.ModTime()) &&
		now.Sub(after.ModTime()) >= settled
}
