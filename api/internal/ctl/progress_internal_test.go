package ctl

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
	p := &progress{w: &out, width: 60, now: func() time.Time { return now }}
	at := func(after time.Duration, done int64) {
		now = now.Add(after)
		p.update(step{what: "Sending", done: done, total: 1000, text: "9,800/s"})
	}
	at(0, 410)
	at(50*time.Millisecond, 420) // too soon
	at(50*time.Millisecond, 999)
	p.note("Paused.")
	at(time.Second, 1000)
	p.end()
	want := "\rSending  41 %  [=============>                   ]  9,800/s\x1b[K" +
		"\rSending  99 %  [================================>]  9,800/s\x1b[K" +
		"\r\x1b[KPaused.\n" +
		"\rSending 100 %  [=================================]  9,800/s\x1b[K\r\x1b[K"
	if out.String() != want {
		t.Errorf("drew\n%q\nwant\n%q", out.String(), want)
	}

	out.Reset()
	p = &progress{w: &out, now: func() time.Time { return now }}
	at(0, 410)
	at(time.Second, 420)
	at(4*time.Second, 430)
	at(5*time.Second, 430) // unchanged
	p.end()
	if want := "Sending  41 %, 9,800/s\nSending  43 %, 9,800/s\n"; out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}

	out.Reset()
	p = &progress{w: &out, width: 60, quiet: true, now: func() time.Time { return now }}
	at(time.Second, 1)
	p.note("x")
	p.end()
	if out.Len() > 0 {
		t.Errorf("%q beside --json", out.String())
	}
}

// A step always fits into one line of the terminal; otherwise the next would not overwrite
// it.
func TestProgress_Fits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := step{
			what: rapid.StringMatching(`[A-Za-zé ]{1,20}`).Draw(t, "what"), text: rapid.StringMatching(`[a-z0-9,/ ]{0,60}`).Draw(t, "text"),
			done: rapid.Int64Range(-5, 2_000_000).Draw(t, "done"), total: rapid.Int64Range(0, 2_000_000).Draw(t, "total"),
		}
		columns := rapid.IntRange(0, 200).Draw(t, "columns")
		line := fit(s, columns)
		if utf8.RuneCountInString(line) > columns || strings.ContainsAny(line, "\r\n") {
			t.Fatalf("%d columns: %q", columns, line)
		}
	})
}

func TestUploadSteps(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	show, now := uploadSteps(size), time.Unix(1_800_000_000, 0)
	for _, s := range []struct {
		after time.Duration
		sent  int64
		want  string
	}{
		{0, 0, "Uploading   0 %|0.0 MiB of 64.0 MiB"},
		{time.Second, 16 << 20, "Uploading  25 %|16.0 MiB of 64.0 MiB, 16.0 MiB/s, 3.0 s left"},
		{time.Second, 32 << 20, "Uploading  50 %|32.0 MiB of 64.0 MiB, 16.0 MiB/s, 2.0 s left"},
		{5 * time.Second, 32 << 20, "Uploading  50 %|32.0 MiB of 64.0 MiB"}, // stalled
		{time.Second, size, "Uploaded 64.0 MiB; the gateway is reading the lines|0 ms so far"},
		{2 * time.Second, size, "Uploaded 64.0 MiB; the gateway is reading the lines|2.0 s so far"},
	} {
		now = now.Add(s.after)
		if got := strings.Join(show(now, s.sent).words(), "|"); got != s.want {
			t.Errorf("%d sent: %q, want %q", s.sent, got, s.want)
		}
	}
	if got := strings.Join(uploadSteps(-1)(now, 5<<20).words(), "|"); got != "Uploading|5.0 MiB" {
		t.Errorf("from a pipe: %q", got)
	}
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 96998: "96,998", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
