// Package logtest keeps what a program logs in a test.
package logtest

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

// Buffer is a log that may be read while it is written.
type Buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// Count returns how many lines contain the text.
func (b *Buffer) Count(text string) int {
	n := 0
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Find returns what the pattern's first group matched first, or "".
func (b *Buffer) Find(pattern string) string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(b.String())
	if found == nil {
		return ""
	}
	return found[1]
}
