//go:build !unix

package output

import "io"

// terminalWidth is 0: progress is written as lines.
func terminalWidth(io.Writer) int { return 0 }
