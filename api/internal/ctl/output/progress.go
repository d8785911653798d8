package output

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// RedrawInterval limits how often a bar is drawn.
const RedrawInterval = 100 * time.Millisecond

const (
	// lineEvery limits how often a line is written without a terminal: 720 lines an hour.
	lineEvery = 5 * time.Second
	// widestBar is the bar's maximum width (columns): one percent is visible.
	widestBar = 50
)

// Progress shows the progress of a command: one line that is redrawn on a terminal, else a
// line every lineEvery. It writes to standard error, because it is not the command's output.
// It is not safe for concurrent use.
type Progress struct {
	w     io.Writer
	width int // of the terminal; 0 = none
	quiet bool
	now   func() time.Time

	shownAt time.Time
	last    string // last line written
	drawn   bool   // the cursor is on a drawn line
}

// NewProgress returns a progress that is written to w: as a bar if bar is set and w is a
// terminal, not at all if quiet is set.
func NewProgress(w io.Writer, bar, quiet bool) *Progress {
	width := 0
	if bar {
		width = terminalWidth(w)
	}
	p := &Progress{w: w, width: width, quiet: quiet, now: time.Now}
	if width == 0 {
		p.shownAt = p.now() // a command that ends sooner writes no line
	}
	return p
}

// Step describes the progress of a command.
type Step struct {
	What        string // Uploading
	Done, Total int64  // total 0 = unknown
	Text        string // behind the percentage
}

// Update shows the step, unless another one was shown just before.
func (p *Progress) Update(s Step) {
	pause := lineEvery
	if p.width > 0 {
		pause = RedrawInterval
	}
	if p.quiet || p.now().Sub(p.shownAt) < pause {
		return
	}
	p.shownAt = p.now()
	if p.width > 0 {
		fmt.Fprint(p.w, "\r", fit(s, p.width-1), "\x1b[K")
		p.drawn = true
		return
	}
	if line := strings.Join(s.Words(), ", "); line != p.last {
		p.last = line
		fmt.Fprintln(p.w, line)
	}
}

// Note writes a separate line immediately.
func (p *Progress) Note(format string, args ...any) {
	if p.quiet {
		return
	}
	p.End()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// End erases the drawn line.
func (p *Progress) End() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn, p.shownAt = false, time.Time{}
	}
}

// Words returns the step's text without its bar.
func (s Step) Words() []string {
	words := []string{s.What}
	if s.Total > 0 {
		words[0] += fmt.Sprintf(" %3d %%", s.percent())
	}
	if s.Text != "" {
		words = append(words, s.Text)
	}
	return words
}

// percent is rounded down, so that only a finished step is at 100.
func (s Step) percent() int64 { return min(max(s.Done, 0), s.Total) * 100 / s.Total }

// fit formats the step for the given number of columns, with a bar if there is room.
func fit(s Step, columns int) string {
	line := strings.Join(s.Words(), "  ")
	room := min(columns-utf8.RuneCountInString(line)-len("  []"), widestBar)
	if s.Total > 0 && room >= 10 {
		full := int(min(max(s.Done, 0), s.Total) * int64(room) / s.Total)
		bar := strings.Repeat("=", full)
		if full < room {
			bar += ">" + strings.Repeat(" ", room-full-1)
		}
		line = strings.Join(append([]string{s.Words()[0], "[" + bar + "]"}, s.Words()[1:]...), "  ")
	}
	if runes := []rune(line); len(runes) > columns {
		return string(runes[:max(columns, 0)])
	}
	return line
}
