package attachment

import (
	"bytes"
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/gabriel-vasile/mimetype"
)

// programs are types of contents that a computer runs. Mail servers reject them under every name.
var programs = []string{
	"application/vnd.microsoft.portable-executable", "application/x-elf", "application/x-object", "application/x-executable",
	"application/x-sharedlib", "application/x-coredump", "application/x-mach-binary", "application/x-ms-installer", "application/x-ms-shortcut",
	"application/wasm", "application/x-java-applet", "application/java-archive",
}

// signed are types all of whose files begin with a signature: a content without one is something else.
var signed = []string{
	"application/pdf", "image/png", "image/jpeg", "image/gif", "image/webp", "image/tiff", "image/bmp", "application/zip", "application/gzip",
	"application/x-7z-compressed", "application/x-rar-compressed", "application/x-ole-storage", "video/mp4",
}

// textOpeners are types of office programs that also open texts under them: many systems send CSV and html as Excel
// files and RTF as Word files, and browsers on Windows report CSV as an Excel file.
var textOpeners = []string{"application/vnd.ms-excel", "application/msword", "application/vnd.ms-powerpoint"}

// unknownType is the type of contents that nothing is known about.
const unknownType = "application/octet-stream"

// Detect returns the type that a content looks like, by its first bytes. The library takes everything that begins with the
// letters MZ for a program of Windows. Such a program has NUL bytes in its header; without any, the rest decides.
func Detect(head []byte) string {
	if bytes.HasPrefix(head, []byte("MZ")) && !bytes.Contains(head, []byte{0}) {
		head = head[1:]
	}
	return mimetype.Detect(head).String()
}

// CheckProgram reports why a content of this type is not sent, or "".
func CheckProgram(detected string) string {
	if slices.ContainsFunc(programs, func(program string) bool { return mimetype.EqualsAny(detected, program) }) {
		return "is a program (" + detected + "), which mail servers reject"
	}
	return ""
}

// CheckType reports why a content that looks like one type must not be sent as another, or "". A type may be more general than
// what the content looks like, application/octet-stream for everything, or more special: a spreadsheet is a ZIP archive. A type
// that the detection does not know fits every content except programs: nothing can contradict it.
func CheckType(declared, detected string) string {
	if why := CheckProgram(detected); why != "" {
		return why
	}
	media, _, err := mime.ParseMediaType(declared)
	if err != nil {
		return "must be a media type"
	}
	wrong := fmt.Sprintf("is %s, but the content looks like %s", media, detected)
	seen, want := mimetype.Lookup(withoutParameters(detected)), mimetype.Lookup(media)
	switch {
	case media == unknownType || seen == nil || want == nil || descends(seen, want):
		return ""
	case seen.Is(unknownType):
		if !slices.ContainsFunc(signed, func(media string) bool { return descends(want, mimetype.Lookup(media)) }) {
			return ""
		}
		return wrong
	case descends(want, seen), isContainer(seen) && isContainer(want):
		return "" // the formats of office programs are told apart by what is deep in the archive
	case isText(seen) && isText(want) && !seen.Is("text/html") && !want.Is("text/html"):
		return "" // JSON, CSV and the like cannot be told apart for certain
	case isText(seen) && slices.ContainsFunc(textOpeners, want.Is):
		return ""
	}
	return wrong
}

func withoutParameters(media string) string {
	before, _, _ := strings.Cut(media, ";")
	return strings.TrimSpace(before)
}

// descends reports whether a type is another one, or a special case of it.
func descends(special, general *mimetype.MIME) bool {
	for ; special != nil && general != nil; special = special.Parent() {
		if special.Is(general.String()) {
			return true
		}
	}
	return false
}

func isText(m *mimetype.MIME) bool {
	for ; m != nil; m = m.Parent() {
		if m.Is("text/plain") {
			return true
		}
	}
	return false
}

// isContainer reports whether files of many types begin like this.
func isContainer(m *mimetype.MIME) bool {
	for ; m != nil; m = m.Parent() {
		if m.Is("application/zip") || m.Is("application/x-ole-storage") || m.Is("application/gzip") || m.Is("text/xml") {
			return true
		}
	}
	return false
}
