package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/gcerrors"
)

// folderPage is large because each page lists the whole folder again.
const folderPage = 10_000

// pingBytes are several blocks of a disk.
const pingBytes = 16 << 10

// folder stores each file under its key's path. A file is written next to its final path, synced
// and renamed, so that a completed Put survives a power failure.
type folder struct {
	path   string
	create bool // whether the program creates a missing folder

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

func (f *folder) put(ctx context.Context, key string, r io.Reader) error {
	bucket, err := f.bucket()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var file *os.File
	w, err := bucket.NewWriter(ctx, key, &blob.WriterOptions{
		ContentType: contentType,
		BeforeWrite: func(as func(any) bool) error {
			if !as(&file) {
				return errors.New("no file behind the writer")
			}
			return file.Chmod(0o600)
		},
	})
	if err != nil {
		return err
	}
	_, err = w.ReadFrom(r)
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		cancel() // makes Close delete the written data instead of renaming it
		_ = w.Close()
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.syncAbove(key)
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

func syncFolder(path string) error {
	opened, err := os.Open(path)
	if err != nil {
		return err
	}
	defer opened.Close()
	return opened.Sync()
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

func (f *folder) dropUnfinished(ctx context.Context, prefix string, before time.Time) (n int, err error) {
	err = filepath.WalkDir(f.path, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !entry.Type().IsRegular() || !isUnfinished(path) || !strings.HasPrefix(path, f.path+"/"+prefix) {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().Before(before) {
			if err = os.Remove(path); err == nil {
				n++
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // its own process has deleted it
			return fmt.Errorf("drop %s: %w", entry.Name(), err)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) { // nothing was ever stored here
		err = nil
	}
	return n, err
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
