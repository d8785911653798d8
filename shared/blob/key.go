package blob

import (
	"fmt"
	"regexp"
	"strings"
)

// attrsSuffix is that of gocloud's own files in a folder.
const attrsSuffix = ".attrs"

// maxKeyBytes is below the 1024 bytes of S3 and the path limits of file systems.
const maxKeyBytes = 512

var (
	// A part of a key is a valid file name everywhere, also with unfinishedSuffix appended.
	partPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$`)
	// unfinished matches the folder's name of an incomplete file.
	unfinished = regexp.MustCompile(`\.[0-9a-f]+\.tmp$`)
)

func isUnfinished(key string) bool { return unfinished.MatchString(key) }

// checkKey accepts parts of letters, digits, dot, dash and underscore that do not begin with a dot,
// separated by single slashes.
func checkKey(key string) error {
	if len(key) > maxKeyBytes {
		return fmt.Errorf("key of %d bytes, at most %d are allowed", len(key), maxKeyBytes)
	}
	for part := range strings.SplitSeq(key, "/") {
		if !partPattern.MatchString(part) {
			return fmt.Errorf("key %.100q: every part must be 1 to 200 of A-Z a-z 0-9 . _ - and not begin with a dot", key)
		}
	}
	if isUnfinished(key) || key == markerKey || strings.HasSuffix(key, attrsSuffix) {
		return fmt.Errorf("key %.100q: the name is reserved", key)
	}
	return nil
}

// checkPrefix accepts the beginning of a key, including "".
func checkPrefix(prefix string) error {
	if prefix == "" || checkKey(strings.TrimSuffix(prefix, "/")) == nil {
		return nil
	}
	return fmt.Errorf("prefix %.100q is not the beginning of a key", prefix)
}
