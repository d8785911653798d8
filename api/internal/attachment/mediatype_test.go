package attachment_test

import (
	"strings"
	"testing"

	"email-gateway/api/internal/attachment"
)

const (
	pdfHead  = "%PDF-1.7\n1 0 obj <</Type /Catalog>> endobj\n"
	pngHead  = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	jpegHead = "\xff\xd8\xff\xe0\x00\x10JFIF\x00"
	icsHead  = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nEND:VCALENDAR\r\n"
	csvHead  = "nome,valor\nAna,1\nBia,2\n"
	htmlHead = "<!DOCTYPE html><html><body>a</body></html>"
	rtfHead  = "{\\rtf1\\ansi Prezado cliente}"
	zipHead  = "PK\x03\x04\x14\x00\x00\x00\x00\x00"
)

func TestCheckType(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		declared, content string
		valid             bool
	}{
		{"application/pdf", pdfHead, true},
		{"application/octet-stream", pdfHead, true},
		{"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", zipHead, true},
		{"application/zip", zipHead, true},
		{"text/plain", csvHead, true},
		{"text/csv", "nome;valor\nAna;1\n", true},
		{"text/x-cnab240", "03300000         2", true},
		// Types that the detection does not know, with contents that it knows well.
		{"image/jpg", jpegHead, true},
		{"image/pjpeg", jpegHead, true},
		{"image/x-png", pngHead, true},
		{"application/csv", csvHead, true},
		{"application/csv", "nome;valor\nAna;1\n", true},
		{"application/ics", icsHead, true},
		{"application/ld+json", `{"a": 1}`, true},
		{"application/vnd.acme.order+json", `{"a": 1}`, true},
		{"application/vnd.acme.remessa", csvHead, true},
		{"text/x-acme", htmlHead, true},
		// Texts that office programs open.
		{"application/vnd.ms-excel", "nome;valor\nAna;1\n", true},
		{"application/vnd.ms-excel", csvHead, true},
		{"application/vnd.ms-excel; charset=utf-8", "<html><table><tr><td>Ana</td></tr></table></html>", true},
		{"application/vnd.ms-excel", `<?xml version="1.0"?><Workbook/>`, true},
		{"application/msword", rtfHead, true},
		{"application/vnd.ms-word", htmlHead, true},
		// Contradictions.
		{"application/vnd.ms-excel", "\x01\x02", false},
		{"application/msword", pdfHead, false},
		{"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", csvHead, false},
		{"application/pdf", pngHead, false},
		{"application/pdf", "hello", false},
		{"application/pdf", "\x01\x02", false},
		{"image/png", jpegHead, false},
		{"image/jpeg", pdfHead, false},
		{"text/csv", htmlHead, false},
	} {
		why := attachment.CheckType(tt.declared, attachment.Detect([]byte(tt.content)))
		if (why == "") != tt.valid {
			t.Errorf("CheckType(%q, the type of %.20q): %q", tt.declared, tt.content, why)
		}
	}
}

// Programs of DOS and Windows begin with the letters MZ, and so do texts.
func TestCheckProgram_TextBeginsWithMZ(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"MZ_ID,nome\n1,Ana\n2,Bia\n":        "text/csv",
		"MZ;Moçambique\n":                   "text/plain; charset=utf-8",
		"MZ 150: manual de instalação\n":    "text/plain; charset=utf-8",
		"MZ":                                "text/plain; charset=utf-8",
		"MZ;Mo\xe7ambique;S\xe3o Jos\xe9\n": "text/plain; charset=iso-8859-1",
	} {
		detected := attachment.Detect([]byte(content))
		if why := attachment.CheckProgram(detected); why != "" || detected != want {
			t.Errorf("%q: %s, want %s: %s", content, detected, want, why)
		}
	}
	program := "MZ\x90\x00\x03\x00\x00\x00\x04\x00\x00\x00\xff\xff\x00\x00" + strings.Repeat("\x00", 44) + "\x80\x00\x00\x00"
	if attachment.CheckProgram(attachment.Detect([]byte(program))) == "" {
		t.Error("a program is accepted")
	}
}
