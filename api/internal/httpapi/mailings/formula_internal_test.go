package mailings

import (
	"strings"
	"testing"
)

// A cell that a spreadsheet would treat as a formula gets a prefix; other cells stay unchanged.
func TestHarmless(t *testing.T) {
	t.Parallel()
	for _, begin := range []string{"=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", " =", "\u00a0="} {
		text := begin + "cmd|' /C calc'!A1"
		if got := escapeFormula(text); got != "'"+text {
			t.Errorf("%q became %q", text, got)
		}
	}
	for _, text := range []string{"", "email", "CPF", "coluna 3", "a=1", "nome-completo", "'=1", strings.Repeat("x", 300), "São Paulo", " nome"} {
		if got := escapeFormula(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
