package attachment_test

import (
	"strings"
	"testing"
	"testing/iotest"

	"email-gateway/api/internal/attachment"
)

// A charset is that of the whole content: the type is detected from the beginning.
func TestContent_Charset(t *testing.T) {
	t.Parallel()
	lines := strings.Repeat("0;abc;123\n", 400)
	for name, tt := range map[string]struct{ content, want string }{
		"ASCII":                    {lines, "text/plain; charset=utf-8"},
		"UTF-8":                    {lines + "S\u00e3o Paulo \u2013 \U0001f600", "text/plain; charset=utf-8"},
		"Latin-1":                  {lines + "S\xe3o Paulo", "text/plain"},
		"Latin-1 at the end":       {lines + "Pal\xe1", "text/plain"},
		"Latin-1 at the beginning": {"S\xe3o Paulo\n" + lines, "text/plain; charset=iso-8859-1"},
		"html":                     {"<!DOCTYPE html><meta charset=utf-8><p>" + lines + "\xe3", "text/html"},
		"XML":                      {`<?xml version="1.0" encoding="UTF-8"?><a>` + lines + "\xe3</a>", "text/xml"},
		"PDF":                      {pdfHead + lines + "\xe3", "application/pdf"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := attachment.Receive(iotest.OneByteReader(strings.NewReader(tt.content)), newDisk(t), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
			for range 2 {
				if got := c.MediaType(); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			}
		})
	}
}
