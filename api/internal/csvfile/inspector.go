package csvfile

import (
	"crypto/sha256"
	"hash"
)

const (
	// sampleBytes is how much of the beginning of a file is kept to detect its format: a few hundred rows.
	sampleBytes = 64 << 10
	// blockBytes is how much is examined at a time.
	blockBytes = 32 << 10
)

// Inspector is an io.Writer that examines an upload on its way to storage. Write never fails. It uses 96
// KiB, whatever the upload's size; how the upload is divided into writes does not matter.
type Inspector struct {
	size   int64
	digest hash.Hash
	sample []byte

	// block[done:] is not examined yet; at most one byte before it is kept.
	block  []byte
	done   int
	narrow encodingStats
	wide   map[Encoding]*utf16Checker // once the sample is full
}

// NewInspector returns an empty Inspector.
func NewInspector() *Inspector {
	return &Inspector{digest: sha256.New()}
}

// Write processes the next piece of the upload.
func (in *Inspector) Write(p []byte) (int, error) {
	in.size += int64(len(p))
	in.digest.Write(p)
	in.takeWide(p)
	for rest := p; len(rest) > 0; {
		if in.block == nil {
			in.block = make([]byte, 0, blockBytes)
		}
		n := copy(in.block[len(in.block):cap(in.block)], rest)
		in.block, rest = in.block[:len(in.block)+n], rest[n:]
		if len(in.block) == cap(in.block) {
			in.takeBlock()
		}
	}
	return len(p), nil
}

// takeBlock examines the block and makes room. The byte before the next one is kept, because it is
// context for it.
func (in *Inspector) takeBlock() {
	in.done = in.narrow.take(in.block, in.done, false)
	keep := max(in.done-1, 0)
	in.block = in.block[:copy(in.block, in.block[keep:])]
	in.done -= keep
}

// takeWide fills the sample, which decides whether the file could be UTF-16, and checks the possible byte
// orders.
func (in *Inspector) takeWide(p []byte) {
	if room := sampleBytes - len(in.sample); room > 0 {
		n := min(room, len(p))
		in.sample, p = append(in.sample, p[:n]...), p[n:]
		if len(in.sample) == sampleBytes {
			in.wide = in.followSample()
		}
	}
	for _, w := range in.wide {
		w.take(p)
	}
}

func (in *Inspector) followSample() map[Encoding]*utf16Checker {
	wide := utf16Checkers(in.sample)
	for _, w := range wide {
		w.take(in.sample)
	}
	return wide
}

// Inspection returns the result so far; after the last Write, that of the whole file.
func (in *Inspector) Inspection() Inspection {
	i := Inspection{Size: in.size, sample: in.sample, stats: in.narrow, loneSurrogate: map[Encoding]int{}}
	in.digest.Sum(i.SHA256[:0])
	i.stats.take(in.block, in.done, true)
	wide := in.wide
	if len(in.sample) < sampleBytes {
		wide = in.followSample()
	}
	for encoding, w := range wide {
		i.loneSurrogate[encoding] = w.loneSurrogate()
	}
	return i
}
