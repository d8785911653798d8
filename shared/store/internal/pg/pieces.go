package pg

import "iter"

// Pieces splits rows that one transaction writes into parts of at most the size of a group, in order: one statement for
// each. A statement with 10 MiB of parameters would need several times as much memory in both client and server.
func Pieces[T any](rows []T, size func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(rows) > 0 {
			n, bytes := 0, 0
			for n < len(rows) && n < GroupRows {
				more := size(rows[n])
				if n > 0 && bytes+more > GroupBytes {
					break
				}
				bytes += more
				n++
			}
			if !yield(rows[:n:n]) {
				return
			}
			rows = rows[n:]
		}
	}
}
