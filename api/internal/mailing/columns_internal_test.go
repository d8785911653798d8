package mailing

import (
	"strings"
	"testing"
)

// Names of columns are shown as the file has them, but short and without control characters.
func TestShortColumn(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"São Paulo": "São Paulo", "\x1bcpf\u009b": " cpf ", strings.Repeat("é", 101): strings.Repeat("é", 100) + "…",
	} {
		if got := shortColumn(name); got != want {
			t.Errorf("%q became %q instead of %q", name, got, want)
		}
	}
}
