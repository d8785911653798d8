package output_test

import (
	"strings"
	"testing"
	"time"

	"email-gateway/api/internal/ctl/output"
)

func TestSpan(t *testing.T) {
	t.Parallel()
	tests := map[time.Duration]string{
		0:                           "0 ms",
		999999 * time.Microsecond:   "999 ms",
		time.Second:                 "1.0 s",
		9999 * time.Millisecond:     "9.9 s",
		10 * time.Second:            "10 s",
		59*time.Second + 999:        "59 s",
		time.Minute:                 "1 min",
		200 * time.Second:           "3 min 20 s",
		time.Hour:                   "1 h",
		90 * time.Minute:            "1 h 30 min",
		47*time.Hour + time.Minute:  "47 h 1 min",
		48 * time.Hour:              "2 d",
		75 * time.Hour:              "3 d 3 h",
		-1500 * time.Millisecond:    "-1.5 s",
		365 * 24 * time.Hour:        "365 d",
		24*time.Hour - time.Second:  "23 h 59 min",
		3600*time.Second - 1:        "59 min 59 s",
		48*time.Hour - 1:            "47 h 59 min",
		10*time.Second - 1:          "9.9 s",
		60*time.Second - 1:          "59 s",
		time.Second - 1:             "999 ms",
		2*time.Hour + 3*time.Second: "2 h",
	}
	for d, want := range tests {
		if got := output.Duration(d); got != want {
			t.Errorf("span(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 13, 0, 0, 0, time.FixedZone("BRT", -3*3600))
	if got := output.RelativeTime(now.Add(90*time.Second), now); got != "2026-11-21 16:01:30Z (in 1 min 30 s)" {
		t.Error(got)
	}
	if got := output.RelativeTime(now.Add(-90*time.Second), now); got != "2026-11-21 15:58:30Z (1 min 30 s ago)" {
		t.Error(got)
	}
}

// A printed command can be pasted into a shell.
func TestShellWord(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"Acme":           "Acme",
		"acme.example":   "acme.example",
		"":               "''",
		"Acme Ltda":      "'Acme Ltda'",
		"O'Neill":        `'O'\''Neill'`,
		"$(reboot)":      "'$(reboot)'",
		"a;b":            "'a;b'",
		"Padaria do Zé!": "'Padaria do Zé!'",
	}
	for word, want := range tests {
		if got := output.ShellWord(word); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", word, got, want)
		}
	}
}

// Foreign text cannot move the cursor, colour the terminal or forge a row.
func TestTable_EscapesControlCharacters(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	output.Table(&out, "  ", [][]string{{"name", "value"}, {"Zé", "a\x1b[31mred\nb\tc\u202e"}, {"longer than", ""}})
	want := "  name         value\n  Zé           a [31mred b c\n  longer than\n"
	if out.String() != want {
		t.Errorf("got\n%q\nwant\n%q", out.String(), want)
	}
}
