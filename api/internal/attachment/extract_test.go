package attachment_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/spool"
	"email-gateway/api/internal/strictjson"
)

type disk struct{ *spool.Dir }

func (disk) Reserve(int64) error { return nil }

func newDisk(t *testing.T) disk {
	t.Helper()
	dir, err := spool.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return disk{dir}
}

// extract returns the reduced document as it is parsed, or why it is not valid JSON.
func extract(t interface{ Fatal(args ...any) }, d disk, body string) (text string, contents *attachment.Contents, invalid error) {
	reduced, contents, err := attachment.Extract(io.MultiReader(strings.NewReader(body)), d, attachment.Limits{Document: 1 << 20, Contents: 1 << 20, Count: 10})
	if err != nil {
		t.Fatal(err)
	}
	_, invalid = strictjson.Parse(reduced)
	return string(reduced), contents, withoutPosition(invalid)
}

func withoutPosition(err error) error {
	if invalid, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		return invalid.WithoutPosition()
	}
	return err
}

func sum(content string) []byte {
	s := sha256.Sum256([]byte(content))
	return s[:]
}

const prefix = `{"to":"ana@example.com","attachments":[{"filename":"a.txt","content":`

// A body is valid JSON if and only if the reduced document is, and the reason is the same.
func TestExtract_InvalidJSON(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	for _, body := range []string{
		// within a content
		prefix + "\"QUJD\nREVG\"}]}", prefix + "\"QUJD\r\"}]}", prefix + "\"\tQUJD\"}]}", prefix + "\"QUJD\x00\"}]}", prefix + "\"QUJD\x1f\"}]}",
		prefix + `"QU\qJD"}]}`, prefix + `"QU\'JD"}]}`, prefix + "\"QU\\\nJD\"}]}", prefix + `"QU\u12"}]}`, prefix + `"QU\u12G4JD"}]}`, prefix + `"QU\x41"}]}`,
		prefix + `"QU\U0041"}]}`, prefix + "\"QUJD\xff\"}]}", prefix + "\"QUJD\xc3\x28\"}]}", prefix + "\"QUJD\xed\xa0\x80\"}]}", prefix + "\"QUJD\xc3\"}]}",
		prefix + `"Q\qUJD", "x":"y"}]}`, prefix + `"Q\q"JD"}]}`, prefix + `"\u"QUJD"}]}`, prefix + `"QUJD`, prefix,
		// around it
		prefix + `"QUJD" "REVG"}]}`, prefix + `"QUJD"REVG"}]}`, prefix + `"QUJD",}]}`, prefix + `"QUJD"},]}`, prefix + `"QUJD"}]`, prefix + `"QUJD"}]}}`,
		prefix + `"QUJD"}]} {}`, prefix + `"QUJD"}]}x`, prefix + "\"QUJD\"}]}\ufeff", prefix + `QUJD}]}`, prefix + `'QUJD'}]}`,
		// white space within and between values
		`{"priority":1 2}`, `{"priority":- 1}`, `{"a":tru e}`, `{"a":[1 2]}`, `{"a":[1,2 3]}`, `{"a":1 "b":2}`, `{"a" "b"}`, `{"a" 1}`, `{1:2}`, `{"a":1,}`, `{,"a":1}`,
		`{"a":}`, `{"a":,"b":1}`, `[1,]`, `[,1]`, `{"a":[}`, `{"a":NaN}`, `{"a":+1}`, `{"a":01}`, `{"a":1.}`, `{"a":nul}`, `{"a":é}`, `{"a":1é}`, "{\"a\":\"\n\"}", `{"a":"\q"}`,
		"", " ", "\ufeff", " \ufeff{}", "\ufeff\ufeff{}", "\xef\xbb{}", "\xbb\xbf{}", "\xff\xfe{\x00}\x00", "\xfe\xff\x00{\x00}", "\xff", `[]`, `5`, `"a"`, `5 6`, `{} {}`, "{}\x00",
		// beyond the depth of valid requests
		`{"a":` + strings.Repeat("[", 40) + `1 2` + strings.Repeat("]", 40) + `}`, `{"a":` + strings.Repeat("[", 40) + `"]"}`,
	} {
		_, want := strictjson.Parse([]byte(body))
		want = withoutPosition(want)
		text, contents, got := extract(t, d, body)
		contents.Close()
		if want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("body %q, reduced to %q: got error %v, want %v", body, text, got, want)
		}
	}
}

func TestExtract_ValidJSON(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	for content, want := range map[string]string{
		`"QUJDREVG"`: "ABCDEF", `"QUJD\nREVG\r\n"`: "ABCDEF", ` "QUJD REVG" `: "ABCDEF", `"QU\u004aD\u0052EVG"`: "ABCDEF", `"\/\u002F\u002b\/"`: "\xff\xff\xbf",
		`"QU\bJD"`: "", `"QU\fJD"`: "", `"QU\"JD"`: "", `"QU\\JD"`: "", `"QUJDé"`: "", `"QUJD\ud83d"`: "", "\"QUJD\x7f\"": "",
	} {
		body := "\ufeff" + prefix + content + `}],"deep":` + strings.Repeat(`{"a":[`, 40) + `" ] "` + strings.Repeat(`]}`, 40) + `} `
		if _, err := strictjson.Parse([]byte(body)); err != nil {
			t.Fatal(err)
		}
		text, contents, err := extract(t, d, body)
		if err != nil {
			t.Errorf("%s: %v in %s", content, err, text)
		}
		_, reference, _ := strings.Cut(text, `"content":"`)
		reference, _, _ = strings.Cut(reference, `"`)
		found, _, reason := contents.Find(reference)
		switch {
		case want == "" && (found != nil || !strings.Contains(reason, "is not a base64 character")):
			t.Errorf("%s: %s", content, reason)
		case want != "" && (found == nil || found.Size() != int64(len(want)) || !bytes.Equal(found.SHA256(), sum(want))):
			t.Errorf("%s: %s %s", content, reference, reason)
		}
		contents.Close()
	}
}

// Random documents with mistakes: the reduced document is invalid exactly if the body is.
func TestExtract_InvalidExactlyIfTheBodyIs(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	piece := rapid.SampledFrom([]string{
		`{`, `}`, `[`, `]`, `:`, `,`, `"`, `\`, `"attachments"`, `"content"`, `"QUJD"`, `"attachments":[{`, `"content":"`, `1`, `-`, `.5`, `true`, `nul`, ` `, "\n", "\x01",
		`\n`, `\q`, `\u00`, `\u0041`, `\ud83d`, "é", "\xc3", "\x80", "\ufeff", `"a":`, `{}`, `}]`,
	})
	whole := prefix + `"QUJDREVG"},{"content":"QUJD\n"}],"a":[1, 2.5e3 ,true , null],"b":{"c":"\u00e9é"}}`
	rapid.Check(t, func(t *rapid.T) {
		body := strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), "")
		if rapid.Bool().Draw(t, "change a valid body") {
			from := rapid.IntRange(0, len(whole)).Draw(t, "from")
			to := min(from+rapid.IntRange(0, 3).Draw(t, "bytes"), len(whole))
			body = whole[:from] + rapid.SampledFrom([]string{"", body, body[:min(len(body), 1)]}).Draw(t, "insert") + whole[to:]
		}
		_, want := strictjson.Parse([]byte(body))
		text, contents, got := extract(t, d, body)
		contents.Close()
		if (want == nil) != (got == nil) {
			t.Fatalf("%q: %v\n%q: %v", body, want, text, got)
		}
	})
}
