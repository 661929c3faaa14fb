package recording

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// countEvery is how often all files are counted.
const countEvery = 30 * time.Second

// run counts all files, again and again.
func (d *folder) run(ctx context.Context) { wait.Until(d.count, countEvery, ctx.Done()) }

// create makes a file.
func (d *folder) create(file string, of owner) (sink, error) {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return nil, plain(err)
	}
	defer root.Close()
	if err := root.Mkdir(path.Dir(file), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, plain(err)
	}
	opened, err := d.openFile(root, file)
	if err != nil {
		return nil, plain(err)
	}
	d.add(file, of)
	return &openFile{d, file, opened}, nil
}

// plain takes what is within errors of files, which says nothing of paths.
func plain(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return fmt.Errorf("the volume of recordings: %w", of.Err)
	}
	return err
}

// openFile is a file of the folder that is being written.
type openFile struct {
	folder *folder
	path   string
	file   *os.File
}

// Write makes room for what it writes.
func (f *openFile) Write(p []byte) (written int, err error) {
	d := f.folder
	for len(p) > 0 {
		if err := d.reserve(f.path, int64(len(p))); err != nil {
			return written, err
		}
		n, err := f.file.Write(p)
		written += n
		p = p[n:]
		d.metrics.Written.Add(float64(n))
		if err != nil {
			d.release(f.path, int64(len(p)))
			if !errors.Is(err, syscall.ENOSPC) || !d.makeRoom(f.path, int64(len(p))) {
				return written, plain(err)
			}
		}
	}
	return written, nil
}

// check also says to other processes that the file is open.
func (f *openFile) check() error {
	root, err := os.OpenRoot(f.folder.dir)
	if err != nil {
		return plain(err)
	}
	defer root.Close()
	there, missing := root.Lstat(f.path)
	own, err := f.file.Stat()
	switch {
	case errors.Is(err, os.ErrClosed):
		return nil
	case missing != nil || err != nil || !os.SameFile(there, own):
		return errGone
	}
	now := time.Now()
	_ = root.Chtimes(f.path, now, now) // what is written does the same
	return nil
}

func (f *openFile) discard() bool {
	_ = f.close() // nobody misses what is in it
	f.folder.remove(f.path)
	return true
}

func (f *openFile) close() error {
	err := f.file.Close()
	f.folder.closed(f.path)
	return plain(err)
}
