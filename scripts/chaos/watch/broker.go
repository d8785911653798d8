package watch

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// brokerPiece is how much of a file is read at once; a secret that lies across two
	// pieces is seen because each begins a little before the end of the last.
	brokerPiece   = 4 << 20
	brokerOverlap = 200
	// job is in the body of each message for a mailing: where it is not seen, nothing is.
	job = `"mailingId"`
)

// searchBroker reads what RabbitMQ has written to its disks since the last time: quorum
// queues keep every message in a log, with its body as it was sent. So no message has to
// be taken from a queue to be looked at.
func (w *Watch) searchBroker() {
	root := filepath.Join(w.stage.RabbitMQ.Home(), "data")
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			w.searchFile(path)
		}
		return nil // files come and go
	})
}

func (w *Watch) searchFile(path string) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil {
		return
	}
	from := w.broker[path]
	if about.Size() < from { // another file by now
		from = 0
	}
	if about.Size() == from {
		return
	}
	piece := make([]byte, brokerPiece)
	for from < about.Size() {
		before := min(from, brokerOverlap)
		n, err := file.ReadAt(piece, from-before)
		if err != nil && !errors.Is(err, io.EOF) || int64(n) <= before {
			break
		}
		w.searchPiece(piece[:n], before, filepath.Base(path))
		from += int64(n) - before
	}
	w.broker[path] = from
}

// searchPiece looks at a piece of a file whose first bytes were looked at before.
func (w *Watch) searchPiece(text []byte, before int64, name string) {
	w.Seen.Broker += int64(len(text)) - before
	w.Seen.Messages += bytes.Count(text[max(0, before-int64(len(job))+1):], []byte(job))
	where := name + " of RabbitMQ"
	w.numbersIn(text, where)
	w.addressesIn(text, where)
}
