package output

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// On a terminal the bar is one line that is redrawn; otherwise a line is written every 5 s.
func TestProgress(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	var out bytes.Buffer
	p := &Progress{w: &out, width: 60, now: func() time.Time { return now }}
	at := func(after time.Duration, done int64) {
		now = now.Add(after)
		p.Update(Step{What: "Sending", Done: done, Total: 1000, Text: "9,800/s"})
	}
	at(0, 410)
	at(50*time.Millisecond, 420) // too soon
	at(50*time.Millisecond, 999)
	p.Note("Paused.")
	at(time.Second, 1000)
	p.End()
	want := "\rSending  41 %  [=============>                   ]  9,800/s\x1b[K" +
		"\rSending  99 %  [================================>]  9,800/s\x1b[K" +
		"\r\x1b[KPaused.\n" +
		"\rSending 100 %  [=================================]  9,800/s\x1b[K\r\x1b[K"
	if out.String() != want {
		t.Errorf("drew\n%q\nwant\n%q", out.String(), want)
	}

	out.Reset()
	p = &Progress{w: &out, now: func() time.Time { return now }}
	at(0, 410)
	at(time.Second, 420)
	at(4*time.Second, 430)
	at(5*time.Second, 430) // unchanged
	p.End()
	if want := "Sending  41 %, 9,800/s\nSending  43 %, 9,800/s\n"; out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}

	out.Reset()
	p = &Progress{w: &out, width: 60, quiet: true, now: func() time.Time { return now }}
	at(time.Second, 1)
	p.Note("x")
	p.End()
	if out.Len() > 0 {
		t.Errorf("progress %q with --json, want none", out.String())
	}
}

// A step always fits into one line of the terminal; otherwise the next would not overwrite
// it.
func TestProgress_Fits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := Step{
			What: rapid.StringMatching(`[A-Za-zé ]{1,20}`).Draw(t, "what"), Text: rapid.StringMatching(`[a-z0-9,/ ]{0,60}`).Draw(t, "text"),
			Done: rapid.Int64Range(-5, 2_000_000).Draw(t, "done"), Total: rapid.Int64Range(0, 2_000_000).Draw(t, "total"),
		}
		columns := rapid.IntRange(0, 200).Draw(t, "columns")
		line := fit(s, columns)
		if utf8.RuneCountInString(line) > columns || strings.ContainsAny(line, "\r\n") {
			t.Fatalf("%d columns: %q", columns, line)
		}
	})
}
