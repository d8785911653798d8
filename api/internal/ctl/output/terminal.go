//go:build unix

package output

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth returns the columns of the terminal that w writes to; 0 if it is no terminal.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 { // unknown width
		return 80
	}
	return int(size.Col)
}
