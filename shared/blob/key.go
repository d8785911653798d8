package blob

import (
	"fmt"
	"regexp"
	"strings"
)

// maxKeyBytes leaves room below the 1024 bytes of S3 and the paths of file systems.
const maxKeyBytes = 512

var (
	// A part of a key is a file name everywhere, also with unfinishedSuffix behind it.
	partPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$`)
	// unfinished is what the folder calls a file until it is whole.
	unfinished = regexp.MustCompile(`\.[0-9a-f]+\.tmp$`)
)

func isUnfinished(key string) bool { return unfinished.MatchString(key) }

// checkKey accepts parts of letters, digits, dot, dash and underscore, none of which
// begins with a dot, with one slash between them.
func checkKey(key string) error {
	if len(key) > maxKeyBytes {
		return fmt.Errorf("key of %d bytes, at most %d are possible", len(key), maxKeyBytes)
	}
	for part := range strings.SplitSeq(key, "/") {
		if !partPattern.MatchString(part) {
			return fmt.Errorf("key %.100q: every part must be 1 to 200 of A-Z a-z 0-9 . _ - and not begin with a dot", key)
		}
	}
	if isUnfinished(key) || strings.HasSuffix(key, ".attrs") { // the second is what gocloud calls files of its own
		return fmt.Errorf("key %.100q: no file may be called so", key)
	}
	return nil
}

// checkPrefix accepts the beginning of a key, "" too.
func checkPrefix(prefix string) error {
	if prefix == "" || checkKey(strings.TrimSuffix(prefix, "/")) == nil {
		return nil
	}
	return fmt.Errorf("prefix %.100q is not the beginning of a key", prefix)
}
