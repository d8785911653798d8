package mailing_test

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/mailing"
)

type field struct{ name, filename, value string }

func readForm(t *testing.T, cut int, fields ...field) (mailing.Form, string, error) {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, f := range fields {
		var part io.Writer
		var err error
		if f.filename != "" {
			part, err = w.CreateFormFile(f.name, f.filename)
		} else {
			part, err = w.CreateFormField(f.name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(part, f.value); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var file string
	sent := body.Bytes()[:body.Len()-cut]
	form, err := mailing.ReadForm(bytes.NewReader(sent), w.Boundary(), func(content io.Reader) error {
		text, err := io.ReadAll(content)
		file += string(text)
		return err
	})
	return form, file, err
}

func TestReadForm(t *testing.T) {
	t.Parallel()
	form, file, err := readForm(t, 0,
		field{name: "tags", value: "a, b"}, field{name: "subject", value: " Olá \n"},
		field{name: "file", filename: `C:\Users\ana\lista.csv`, value: "email\n"},
		field{name: "html", filename: "body.html", value: "<p>x</p>\n"}, field{name: "tags", value: "c"}, field{name: "text", value: ""})
	if err != nil {
		t.Fatal(err)
	}
	if file != "email\n" || !form.HasFile || form.Filename != "lista.csv" || len(form.Faults) > 0 {
		t.Errorf("%q %+v", file, form)
	}
	if diff := cmp.Diff(map[string]string{"subject": "Olá", "html": "<p>x</p>\n"}, form.Values); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string][]string{"tags": {"a", "b", "c"}}, form.Lists); diff != "" {
		t.Error(diff)
	}
}

func TestReadForm_Faults(t *testing.T) {
	t.Parallel()
	form, _, err := readForm(t, 0,
		field{name: "subject", value: "a"}, field{name: "subject", value: "b"}, field{name: "assunto", value: "x"},
		field{name: "html", value: strings.Repeat("x", 512<<10+1)}, field{name: "text", value: "\xff"}, field{name: "name", value: "a\x00b"},
		field{name: "encoding", value: ""}, field{name: "encoding", value: "utf-8"}, field{name: "delivery", value: ""},
		field{name: "file", filename: "a.csv", value: "x"}, field{name: "file", filename: "b.csv", value: "y"},
		field{name: "evil\r\nX: y", value: "z"}, field{name: strings.Repeat("n", 1000), value: "z"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range form.Faults {
		got[f.Field] = f.Code
	}
	want := map[string]string{
		"subject": "DUPLICATE_FIELD", "assunto": "UNKNOWN_FIELD", "html": "TOO_LONG", "text": "BAD_CHARACTER", "name": "BAD_CHARACTER",
		"delivery": "REQUIRED", "encoding": "DUPLICATE_FIELD", "file": "DUPLICATE_FIELD", "(unnamed)": "UNKNOWN_FIELD",
	}
	for name := range got {
		if strings.ContainsAny(name, "\r\n") || len(name) > 100 {
			t.Errorf("the fault repeats the part name %q", name)
		}
		if strings.HasPrefix(name, "evil") { // depends on the multipart library
			delete(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadForm_Malformed(t *testing.T) {
	t.Parallel()
	// Wherever the body ends before the closing boundary, even between two parts or in the header of one.
	for cut := range 300 {
		_, _, err := readForm(t, cut, field{name: "subject", value: "a"}, field{name: "html", value: strings.Repeat("b", 80)}, field{name: "start", value: "false"})
		if complete := cut == 0 || cut == len("\r\n"); complete != (err == nil) || !complete && !errors.Is(err, mailing.ErrMalformed) {
			t.Errorf("%d bytes missing: %v", cut, err)
		}
	}
	for _, lineEnd := range []string{"\n", "\r\n"} {
		lines := []string{"--b", `Content-Disposition: form-data; name="start"`, "", "false", "--b--"}
		text := strings.Join(lines, lineEnd)
		for _, body := range []string{text, text + lineEnd} {
			if form, err := mailing.ReadForm(strings.NewReader(body), "b", nil); err != nil || form.Values["start"] != "false" {
				t.Errorf("%q: %v", body, err)
			}
		}
		if _, err := mailing.ReadForm(strings.NewReader(strings.TrimSuffix(text, "--")), "b", nil); !errors.Is(err, mailing.ErrMalformed) {
			t.Errorf("line ends %q, not closed: %v", lineEnd, err)
		}
	}
	if _, _, err := readForm(t, 0, make([]field, 65)...); !errors.Is(err, mailing.ErrMalformed) {
		t.Errorf("65 parts: %v", err)
	}
	if _, err := mailing.ReadForm(strings.NewReader(""), "x", nil); !errors.Is(err, mailing.ErrMalformed) {
		t.Errorf("no body: %v", err)
	}
}

// Mail libraries encode parts. A part is never sent as it was encoded.
func TestReadForm_EncodedPart(t *testing.T) {
	t.Parallel()
	for encoding, want := range map[string]string{
		"base64": "html ENCODED_PART", "BASE64": "html ENCODED_PART", "x-uuencode": "html ENCODED_PART",
		"": "", "7bit": "", "8BIT": "", "binary": "", "Quoted-Printable": "",
	} {
		for _, name := range []string{"html", "file", "other"} {
			body := "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"a\"\r\nContent-Transfer-Encoding: " + encoding + "\r\n\r\n<p>x</p>\r\n--b--\r\n"
			taken := ""
			form, err := mailing.ReadForm(strings.NewReader(body), "b", func(content io.Reader) error {
				text, err := io.ReadAll(content)
				taken = string(text)
				return err
			})
			got := ""
			for _, f := range form.Faults {
				got += f.Field + " " + f.Code
			}
			fault := strings.Replace(want, "html", name, 1)
			if name == "other" && want == "" {
				fault = "other UNKNOWN_FIELD"
			}
			read := form.Values["html"] + taken
			if err != nil || got != fault || (read != "") != (want == "" && name != "other") || form.HasFile != (name == "file") {
				t.Errorf("%s part in %q: %q was read, %s, %v", name, encoding, read, got, err)
			}
		}
	}
}
