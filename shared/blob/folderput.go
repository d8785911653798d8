package blob

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"gocloud.dev/blob"
)

const (
	// writeTimeout limits each call of a Put. It includes the sync of at most syncEvery bytes, for which a busy disk takes seconds.
	writeTimeout = 15 * time.Second
	// syncEvery is how much is written before a sync (bytes): a whole file of 512 MiB would take many disks longer than writeTimeout.
	syncEvery = 8 << 20
	// writeBuffer is how much is written at a time (bytes). A call that hangs keeps it.
	writeBuffer = 256 << 10
)

// folderPut is a file being stored.
type folderPut struct {
	folder   *folder
	ctx      context.Context
	cancel   context.CancelFunc
	key      string
	writer   *blob.Writer // nil before the file is created, and once it has its name or is deleted
	file     *os.File
	unsynced int
	lost     bool // a call hangs: it deletes the file when it returns, and no other call may follow
}

// put runs the calls of a Put one after the other, and returns when one of them takes longer than writeTimeout. Between them the
// time is that of r.
func (f *folder) put(ctx context.Context, key string, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &folderPut{folder: f, ctx: ctx, cancel: cancel, key: key}
	err := p.store(r)
	if err != nil && !p.lost && p.writer != nil {
		f.calls.finally(writeTimeout, p.drop)
	}
	return err
}

func (p *folderPut) store(r io.Reader) error {
	if err := p.call(p.create); err != nil {
		return err
	}
	buffer := make([]byte, writeBuffer)
	for ended := false; !ended; {
		n, err := fill(buffer, r)
		if ended = errors.Is(err, io.EOF); err != nil && !ended {
			return err
		}
		if err := p.call(func() error { return p.write(buffer[:n], ended) }); err != nil {
			return err
		}
	}
	if err := p.call(p.name); err != nil {
		return err
	}
	return p.call(func() error { return p.folder.syncAbove(p.key) })
}

// fill reads until the buffer is full or r returns an error. Unlike io.ReadFull it does not replace the error.
func fill(buffer []byte, r io.Reader) (n int, err error) {
	for n < len(buffer) && err == nil {
		var more int
		more, err = r.Read(buffer[n:])
		n += more
	}
	return n, err
}

// call runs a step within writeTimeout.
func (p *folderPut) call(step func() error) error {
	var result error
	begun, err := p.folder.calls.run(p.ctx, writeTimeout, func() error {
		result = step()
		return nil
	}, p.drop)
	if err != nil {
		p.lost = begun
		return err
	}
	return result
}

func (p *folderPut) create() error {
	bucket, err := p.folder.bucket()
	if err != nil {
		return err
	}
	p.writer, err = bucket.NewWriter(p.ctx, p.key, &blob.WriterOptions{
		ContentType: contentType,
		BeforeWrite: func(as func(any) bool) error {
			if !as(&p.file) {
				return errors.New("no file behind the writer")
			}
			return p.file.Chmod(0o600)
		},
	})
	return err
}

func (p *folderPut) write(data []byte, last bool) error {
	if _, err := p.writer.Write(data); err != nil {
		return err
	}
	if p.unsynced += len(data); p.unsynced < syncEvery && !last {
		return nil
	}
	p.unsynced = 0
	return p.file.Sync()
}

// name gives the file its name, or deletes it if the context has ended.
func (p *folderPut) name() error {
	writer := p.writer
	p.writer = nil
	return writer.Close()
}

// drop deletes the file. It ends the context itself: a call that returns just when its time is over drops the file before
// put has returned.
func (p *folderPut) drop() {
	p.cancel()
	if p.writer != nil {
		_ = p.name()
	}
}
