package monitor

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// brokerPiece is how much of a file is read at once; each piece overlaps the previous one by
	// brokerOverlap, so that matches across the border are found.
	brokerPiece   = 4 << 20
	brokerOverlap = 200
	// job is in the body of each mailing message: if it is not found, the search does not work.
	job = `"mailingId"`
)

// searchBroker reads what RabbitMQ has written to disk since the last call: quorum queues store
// every message in a log, with its original body. So no message has to be consumed.
func (m *Monitor) searchBroker() {
	root := filepath.Join(m.cluster.RabbitMQ.Home(), "data")
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			m.searchFile(path)
		}
		return nil // files may disappear meanwhile
	})
}

func (m *Monitor) searchFile(path string) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil {
		return
	}
	from := m.broker[path]
	if about.Size() < from { // the file was replaced
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
		m.searchPiece(piece[:n], before, filepath.Base(path))
		from += int64(n) - before
	}
	m.broker[path] = from
}

// searchPiece searches a piece of a file, of which the first bytes were searched before.
func (m *Monitor) searchPiece(text []byte, before int64, name string) {
	m.Seen.Broker += int64(len(text)) - before
	m.Seen.Messages += bytes.Count(text[max(0, before-int64(len(job))+1):], []byte(job))
	where := name + " of RabbitMQ"
	m.numbersIn(text, where)
	m.addressesIn(text, where)
}
