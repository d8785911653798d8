package ctl

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// redrawEvery is how often a bar is drawn at most, lineEvery how often a line is
	// written where there is no terminal: a log of an hour has 720 of them.
	redrawEvery = 100 * time.Millisecond
	lineEvery   = 5 * time.Second
	// widestBar is long enough to see one percent move (columns).
	widestBar = 50
)

// progress tells people how far something has come: one line that is drawn again and
// again on a terminal, else a line now and then. It is nobody's answer, so it goes to
// where errors go. It is used by one goroutine.
type progress struct {
	w     io.Writer
	width int // of the terminal; 0 = none
	quiet bool
	now   func() time.Time

	told  time.Time
	last  string // that was written
	drawn bool   // the cursor stands on a drawn line
}

func (c *control) progress() *progress {
	width := terminalWidth(c.Stderr)
	if c.Getenv("TERM") == "dumb" {
		width = 0
	}
	p := &progress{w: c.Stderr, width: width, quiet: c.json, now: time.Now}
	if width == 0 {
		p.told = p.now() // what is over sooner needs no line
	}
	return p
}

// step is how far something has come.
type step struct {
	what        string // Uploading
	done, total int64  // total 0 = nobody knows
	text        string // behind the percentage
}

// tell shows the step, unless another one was shown just before.
func (p *progress) tell(s step) {
	pause := lineEvery
	if p.width > 0 {
		pause = redrawEvery
	}
	if p.quiet || p.now().Sub(p.told) < pause {
		return
	}
	p.told = p.now()
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

// say writes a line of its own, at once.
func (p *progress) say(format string, args ...any) {
	if p.quiet {
		return
	}
	p.end()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// end takes the drawn line away: what comes next stands in its place.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn, p.told = false, time.Time{}
	}
}

// words are the step without its bar.
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

// percent is rounded down: what is not over is not at 100.
func (s step) percent() int64 { return min(max(s.done, 0), s.total) * 100 / s.total }

// fit is the step in so many columns, with a bar if there is room for one.
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

// pace is how fast something goes, as it went lately.
type pace struct {
	at     time.Time
	done   int64
	perSec float64
}

// add takes what is done by now. Of the rate so far it keeps what is not older than
// some seconds, so that a pause is seen and a hiccup is not.
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

// left is how long the rest takes at that pace; 0 = nobody can tell.
func (p *pace) left(done, total int64) time.Duration {
	if p.perSec <= 0 || total <= done {
		return 0
	}
	return time.Duration(float64(total-done) / p.perSec * float64(time.Second))
}
