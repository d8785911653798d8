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

// Count returns how often the text was logged.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }

// Find returns what the pattern's first group matched first, or "".
func (b *Buffer) Find(pattern string) string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(b.String())
	if found == nil {
		return ""
	}
	return found[1]
}
