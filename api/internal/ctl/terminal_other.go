//go:build !unix

package ctl

import "io"

// terminalWidth is 0: lines are readable everywhere.
func terminalWidth(io.Writer) int { return 0 }
