package mailings

import (
	"strings"
	"testing"
)

// A cell that a spreadsheet would treat as a formula gets a prefix; other cells stay unchanged. A spreadsheet
// may also begin a cell behind a delimiter that is not the comma.
func TestHarmless(t *testing.T) {
	t.Parallel()
	for _, begin := range []string{"=", "+", "-", "@", "＝", "＋", "－", "＠", " =", "\u00a0="} {
		text := begin + "cmd|' /C calc'!A1"
		if got := escapeFormula(text); got != "'"+text {
			t.Errorf("%q became %q", text, got)
		}
	}
	for _, begin := range []string{"\t", "\r", "\n"} {
		if got := escapeFormula(begin + "cmd"); got != "'"+begin+"cmd" {
			t.Errorf("%q became %q", begin, got)
		}
	}
	for text, want := range map[string]string{
		"a;=1": "a;'=1", "smtp; =1": "smtp;' =1", "a\t=1": "a\t'=1", "a;\t=1": "a;\t'=1", "a\n-1": "a\n'-1", "a,@b": "a,'@b", "a|+1": "a|'+1",
		`a;"=1"`: `a;'"=1"`, "a;\u00a0＝1": "a;'\u00a0＝1", "=1;=2": "'=1;'=2",
	} {
		if got := escapeFormula(text); got != want {
			t.Errorf("%q became %q instead of %q", text, got, want)
		}
	}
	for _, text := range []string{"", "email", "smtp; 550 5.1.1 unknown user; see a=b, c|d", "nome; e-mail", "CPF", "coluna 3", "a=1", "nome-completo", "'=1", strings.Repeat("x", 300), "São Paulo", " nome"} {
		if got := escapeFormula(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
