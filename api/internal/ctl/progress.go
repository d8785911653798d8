package ctl

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// redrawEvery limits how often a bar is drawn.
const redrawEvery = 100 * time.Millisecond

const (
	// lineEvery limits how often a line is written without a terminal: 720 lines an hour.
	lineEvery = 5 * time.Second
	// widestBar is the bar's maximum width (columns): one percent is visible.
	widestBar = 50
)

// progress shows the progress of a command: one line that is redrawn on a terminal, else a
// line every lineEvery. It writes to standard error, because it is not the command's output.
// It is not safe for concurrent use.
type progress struct {
	w     io.Writer
	width int // of the terminal; 0 = none
	quiet bool
	now   func() time.Time

	shownAt time.Time
	last    string // last line written
	drawn   bool   // the cursor is on a drawn line
}

// progress returns the progress of a command, which --json hides.
func (c *control) progress() *progress {
	return newProgress(c.Stderr, c.Getenv("TERM") != "dumb", c.json)
}

// newProgress returns a progress that is written to w: as a bar if bar is set and w is a
// terminal, not at all if quiet is set.
func newProgress(w io.Writer, bar, quiet bool) *progress {
	width := 0
	if bar {
		width = terminalWidth(w)
	}
	p := &progress{w: w, width: width, quiet: quiet, now: time.Now}
	if width == 0 {
		p.shownAt = p.now() // a command that ends sooner writes no line
	}
	return p
}

// step describes the progress of a command.
type step struct {
	what        string // Uploading
	done, total int64  // total 0 = unknown
	text        string // behind the percentage
}

// update shows the step, unless another one was shown just before.
func (p *progress) update(s step) {
	pause := lineEvery
	if p.width > 0 {
		pause = redrawEvery
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
	if line := strings.Join(s.words(), ", "); line != p.last {
		p.last = line
		fmt.Fprintln(p.w, line)
	}
}

// note writes a separate line immediately.
func (p *progress) note(format string, args ...any) {
	if p.quiet {
		return
	}
	p.end()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// end erases the drawn line.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn, p.shownAt = false, time.Time{}
	}
}

// words returns the step's text without its bar.
func (s step) words() []string {
	words := []string{s.what}
	if s.total > 0 {
		words[0] += fmt.Sprintf(" %3d %%", s.percent())
	}
	if s.text != "" {
		words = append(words, s.text)
	}
	return words
}

// percent is rounded down, so that only a finished step is at 100.
func (s step) percent() int64 { return min(max(s.done, 0), s.total) * 100 / s.total }

// fit formats the step for the given number of columns, with a bar if there is room.
func fit(s step, columns int) string {
	line := strings.Join(s.words(), "  ")
	room := min(columns-utf8.RuneCountInString(line)-len("  []"), widestBar)
	if s.total > 0 && room >= 10 {
		full := int(min(max(s.done, 0), s.total) * int64(room) / s.total)
		bar := strings.Repeat("=", full)
		if full < room {
			bar += ">" + strings.Repeat(" ", room-full-1)
		}
		line = strings.Join(append([]string{s.words()[0], "[" + bar + "]"}, s.words()[1:]...), "  ")
	}
	if runes := []rune(line); len(runes) > columns {
		return string(runes[:max(columns, 0)])
	}
	return line
}

// pace estimates the current rate.
type pace struct {
	at     time.Time
	done   int64
	perSec float64
}

// add records what is done by now. The rate is a moving average over about five seconds, so
// that it shows a pause but not a single delay.
func (p *pace) add(now time.Time, done int64) {
	if p.at.IsZero() {
		p.at, p.done = now, done
		return
	}
	passed := now.Sub(p.at).Seconds()
	if passed < 0.5 {
		return
	}
	latest := float64(done-p.done) / passed
	weight := min(passed/5, 1)
	if p.perSec == 0 {
		weight = 1
	}
	p.perSec += (latest - p.perSec) * weight
	p.at, p.done = now, done
}

// left estimates the remaining time; 0 = unknown.
func (p *pace) left(done, total int64) time.Duration {
	if p.perSec <= 0 || total <= done {
		return 0
	}
	return time.Duration(float64(total-done) / p.perSec * float64(time.Second))
}
