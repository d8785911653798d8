package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/gcerrors"
)

// folderPage is how many entries of a directory are read at a time: a directory may have millions.
const folderPage = 1000

// pingBytes are several blocks of a disk.
const pingBytes = 16 << 10

// folder stores each file under its key's path. A file is written next to its final path, synced
// and renamed, so that a completed Put survives a power failure.
type folder struct {
	path   string
	create bool // whether the program creates a missing folder
	calls  calls

	mu     sync.Mutex
	opened *blob.Bucket
}

// bucket opens the folder at its first use: until then a missing disk has no effect.
func (f *folder) bucket() (*blob.Bucket, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opened == nil {
		opened, err := fileblob.OpenBucket(f.path, &fileblob.Options{
			CreateDir: f.create, DirFileMode: 0o700,
			NoTempDir: true, // a rename does not work across file systems
			Metadata:  fileblob.MetadataDontWrite,
		})
		if err != nil {
			return nil, err
		}
		f.opened = opened
	}
	return f.opened, nil
}

// syncAbove syncs the directory entries of the file and of each folder above it.
func (f *folder) syncAbove(key string) error {
	for dir := filepath.Dir(filepath.Join(f.path, key)); len(dir) >= len(f.path); dir = filepath.Dir(dir) {
		if err := syncFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

// syncFolder does nothing on file systems that cannot sync a directory, such as some network disks: what is renamed is as durable
// there as the file system makes it.
func syncFolder(path string) error {
	opened, err := os.Open(path)
	if err != nil {
		return err
	}
	defer opened.Close()
	if err = opened.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// ping writes a file that List does not show: a folder that is not writable, or is full, is not
// usable as a storage. A full disk still takes empty files.
func (f *folder) ping(context.Context) error {
	if _, err := f.bucket(); err != nil {
		return err
	}
	probe, err := os.CreateTemp(f.path, "ping.0*.tmp")
	if err != nil {
		return err
	}
	_, err = io.CopyN(probe, rand.Reader, pingBytes) // random, because zeros may take no space
	if err == nil {
		err = probe.Sync() // only this reports that a network disk is full
	}
	return errors.Join(err, probe.Close(), os.Remove(probe.Name()))
}

// pingRead opens the folder, which may be on a read-only mount.
func (f *folder) pingRead(context.Context) error {
	_, err := f.bucket()
	return err
}

// list does not use gocloud's list, of which each page reads the whole folder again.
func (f *folder) list(ctx context.Context, prefix string, yield func(Object) bool) error {
	if _, err := f.bucket(); err != nil {
		return err
	}
	return f.walk(ctx, prefix, func(key string, entry fs.DirEntry) (more bool, err error) {
		if isUnfinished(key) || strings.HasSuffix(key, attrsSuffix) {
			return true, nil
		}
		info, err := entry.Info()
		if err != nil {
			return true, err
		}
		return yield(Object{Key: key, Size: info.Size(), ModTime: info.ModTime()}), nil
	})
}

func (f *folder) dropUnfinished(ctx context.Context, prefix string, before time.Time) (n int, err error) {
	err = f.walk(ctx, prefix, func(key string, entry fs.DirEntry) (more bool, err error) {
		if !isUnfinished(key) {
			return true, nil
		}
		info, err := entry.Info()
		if err != nil || !info.ModTime().Before(before) {
			return true, err
		}
		if err = os.Remove(filepath.Join(f.path, key)); err != nil {
			return true, fmt.Errorf("drop %s: %w", entry.Name(), err)
		}
		n++
		return true, nil
	})
	if errors.Is(err, fs.ErrNotExist) { // nothing was ever stored here
		err = nil
	}
	return n, err
}

// walk visits the files whose keys begin with the prefix, in any order, until visit returns false or an error. That a file or a
// folder below is gone is no error: its own process has deleted it.
func (f *folder) walk(ctx context.Context, prefix string, visit func(key string, entry fs.DirEntry) (more bool, err error)) error {
	if _, err := os.Stat(f.path); err != nil {
		return err
	}
	_, err := f.walkIn(ctx, path.Dir(prefix+"x"), func(key string, entry fs.DirEntry) (more bool, err error) {
		if !strings.HasPrefix(key, prefix) {
			return true, nil
		}
		more, err = visit(key, entry)
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return more, err
	})
	return err
}

// walkIn visits the files in a folder and those below it.
func (f *folder) walkIn(ctx context.Context, dir string, visit func(key string, entry fs.DirEntry) (more bool, err error)) (more bool, err error) {
	opened, err := os.Open(filepath.Join(f.path, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer opened.Close()
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		entries, err := opened.ReadDir(folderPage)
		for _, entry := range entries {
			more, err := true, error(nil)
			switch key := path.Join(dir, entry.Name()); {
			case entry.IsDir():
				more, err = f.walkIn(ctx, key, visit)
			case entry.Type().IsRegular():
				more, err = visit(key, entry)
			}
			if err != nil || !more {
				return false, err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, fs.ErrNotExist):
			return true, nil
		case err != nil:
			return false, err
		}
	}
}

func (f *folder) missing(err error) bool {
	if gcerrors.Code(err) != gcerrors.NotFound {
		return false
	}
	_, err = os.Stat(f.path)
	return err == nil
}

func (f *folder) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opened == nil {
		return nil
	}
	return f.opened.Close()
}
