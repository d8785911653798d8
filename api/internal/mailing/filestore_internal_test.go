package mailing

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestLimited(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{"": nil, "123456": nil, "1234567": ErrFileTooLarge, strings.Repeat("x", 100): ErrFileTooLarge} {
		got, err := io.ReadAll(&limited{r: strings.NewReader(text), left: 6})
		if !errors.Is(err, want) || len(got) > 6 {
			t.Errorf("%d bytes: %v after %d", len(text), err, len(got))
		}
	}
}
