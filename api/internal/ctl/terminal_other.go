//go:build !unix

package ctl

import "io"

// terminalWidth is 0: progress is written as lines.
func terminalWidth(io.Writer) int { return 0 }
