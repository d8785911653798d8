//go:build unix

package ctl

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth is how many columns the terminal has that w writes to; 0 if it is none.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 { // a terminal that does not tell
		return 80
	}
	return int(size.Col)
}
