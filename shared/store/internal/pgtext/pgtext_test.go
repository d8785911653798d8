package pgtext_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/storetest"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{"a":[1,2.5,-3,null,true,"é"]}`: `{"a":[1,2.5,-3,null,true,"é"]}`,
		`{"a":"<\u003e \\u0000"}`:        `{"a":"<\u003e \\u0000"}`, // an escaped backslash before u0000
		`"\ud834\udd1e"`:                 `"\ud834\udd1e"`,
		`"\ud834"`:                       `"\"\\ud834\""`,
		`"\u0000"`:                       `"\"\\u0000\""`,
		"a\x00b":                         `"ab"`,
		"\xff":                           "\"\uFFFD\"",
		``:                               `""`,
		`1 2`:                            `"1 2"`,
		`1e400`:                          `"1e400"`,
	} {
		if got := pgtext.JSON([]byte(given)); got != want {
			t.Errorf("%q: %s, want %s", given, got, want)
		}
	}
}

// hardJSON are texts that JSON, encoding/json and jsonb treat differently.
func hardJSON() []string {
	return []string{
		`{}`, `{"a":{"b":[1,"x"]}}`, `"\u0000"`, `"\\u0000"`, `"\\\u0000"`, `{"\u0000":1}`, `"\ud800"`, `"\udc00\ud800"`, `"\ud834\udd1e"`, "\"\x00\"", "\xff\xfe",
		`1e400`, `-1E-99999`, `123456789012345678901234567890`, "[" + strings.Repeat("9", 200000) + "]", strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		strings.Repeat(`{"a":`, 99) + "1" + strings.Repeat("}", 99), `{"a":1,"a":2}`, `nul`, `"\u00"`, `"a`, "\u2028", `"` + "\uFFFD" + `"`, ` {"a" : 1} `, `-0`, `"\ud834\u0041"`,
	}
}

// Postgres accepts every result of JSON as jsonb.
func TestJSON_AsPostgresSeesIt(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for _, given := range hardJSON() {
		text := pgtext.JSON([]byte(given))
		if _, err := d.SQL.ExecContext(t.Context(), `SELECT $1::jsonb`, text); err != nil {
			t.Errorf("%.80q became %.80q: %v", given, text, err)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, given := range hardJSON() {
		if len(given) < 100 { // the fuzzer is slow on long ones
			f.Add([]byte(given))
		}
	}
	f.Fuzz(func(t *testing.T, given []byte) {
		text := pgtext.JSON(given)
		if !json.Valid([]byte(text)) {
			t.Fatalf("%q became %q, which is no JSON", given, text)
		}
		if strings.ContainsRune(text, 0) {
			t.Fatalf("%q holds U+0000", text)
		}
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		switch whole := value.(type) {
		case string: // the bytes, or a JSON string that they are
			if strings.ContainsRune(whole, 0) {
				t.Fatalf("%q holds an escaped U+0000", text)
			}
		default:
			if text != string(given) {
				t.Fatalf("%q was changed to %q", given, text)
			}
		}
	})
}

// Only real escapes of U+0000 are removed; everything else is unchanged.
func FuzzWithoutEscapedNUL(f *testing.F) {
	for _, text := range []string{"", "a\x00b", `\u0000`, `\\u0000`, "\\\x00", "\x00\x00", `"`, "é\u2028"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		encoded, err := json.Marshal(map[string]any{"a" + text: []any{text, 1}})
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(pgtext.WithoutEscapedNUL(encoded), &got); err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		var want strings.Builder
		for _, r := range text { // which reads U+FFFD for each byte that is no text, as the encoder does
			if r != 0 {
				want.WriteRune(r)
			}
		}
		if !cmp.Equal(got, map[string]any{"a" + want.String(): []any{want.String(), 1.0}}) {
			t.Fatalf("%q became %v", text, got)
		}
	})
}
