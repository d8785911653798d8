package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
)

type person struct {
	Name string `json:"name"`
}

type order struct {
	Title    string            `json:"title"`
	Tags     []string          `json:"tags"`
	Headers  map[string]string `json:"headers"`
	Person   *person           `json:"person"`
	Priority *int              `json:"priority"`
	Urgent   bool              `json:"urgent"`
}

func read(t testing.TB, body string) (order, []rules.Fault) {
	t.Helper()
	reader, err := strictjson.NewReader[order]()
	if err != nil {
		t.Fatal(err)
	}
	document, err := strictjson.Parse([]byte(body))
	if err != nil {
		t.Fatalf("Parse(%q): %v", body, err)
	}
	return reader.Read(document)
}

func TestRead(t *testing.T) {
	t.Parallel()
	got, faults := read(t, ` {
		"title" : "a \"b\" \\ \/ \b\f\n\r\t \u00e9 \ud83d\ude00 ç",
		"tags":["x" , "", "]"], "headers":{"X-A":"1","X-B":"{,}"},
		"person":{"name":"Ana"},"priority":7,"urgent":true}
	`)
	seven := 7
	want := order{
		Title: "a \"b\" \\ / \b\f\n\r\t é 😀 ç", Tags: []string{"x", "", "]"},
		Headers: map[string]string{"X-A": "1", "X-B": "{,}"}, Person: &person{"Ana"}, Priority: &seven, Urgent: true,
	}
	if diff := cmp.Diff(want, got); diff != "" || len(faults) > 0 {
		t.Errorf("faults %v, difference (-want +got):\n%s", faults, diff)
	}
}

func TestRead_EmptyContainers(t *testing.T) {
	t.Parallel()
	if _, faults := read(t, `{ "tags" : [ ] , "headers" : { } , "person" : { } }`); len(faults) > 0 {
		t.Error(faults)
	}
}

// JSON has no integers: programs whose numbers are floating-point write them with a fraction of zero.
func TestRead_Integers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"5": 5, "5.0": 5, "-5.000": -5, "2147483647.0": 2147483647} {
		if got, faults := read(t, `{"priority":`+text+`}`); len(faults) > 0 || got.Priority == nil || *got.Priority != want {
			t.Errorf("%s: %v %v", text, got.Priority, faults)
		}
	}
	for _, text := range []string{"5.01", "0.5", "5e0", "5.0e1", "2147483648.0"} {
		if _, faults := read(t, `{"priority":`+text+`}`); len(faults) != 1 || faults[0].Code != "WRONG_TYPE" {
			t.Errorf("%s: %v", text, faults)
		}
	}
}

func TestRead_NamesEveryFault(t *testing.T) {
	t.Parallel()
	_, faults := read(t, `{
		"title": 1, "Tags": [], "tags": ["a", null, {"x": [1, "]"]}], "headers": {"X-A": 1, "X-B": "b", "X-B": "c"},
		"person": {"name": ["a"], "age": 3, "name": "b"}, "priority": 5.5, "urgent": "yes", "other": {"deep": [[[]]]},
		"title": "again"}`)
	type named struct{ Field, Code string }
	var got []named
	for _, f := range faults {
		if f.Message == "" {
			t.Errorf("%s has no message", f.Field)
		}
		got = append(got, named{f.Field, f.Code})
	}
	want := []named{
		{"title", "WRONG_TYPE"},
		{"Tags", "UNKNOWN_FIELD"},
		{"tags[1]", "WRONG_TYPE"},
		{"tags[2]", "WRONG_TYPE"},
		{"headers.X-A", "WRONG_TYPE"},
		{"headers.X-B", "DUPLICATE_FIELD"},
		{"person.name", "WRONG_TYPE"},
		{"person.age", "UNKNOWN_FIELD"},
		{"person.name", "DUPLICATE_FIELD"},
		{"priority", "WRONG_TYPE"},
		{"urgent", "WRONG_TYPE"},
		{"other", "UNKNOWN_FIELD"},
		{"title", "DUPLICATE_FIELD"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestRead_BadCharacters(t *testing.T) {
	t.Parallel()
	for _, literal := range []string{`"\u0000"`, `"a\ud800"`, `"\udc00b"`, `"\ud800\u0041"`, `"\ud800\ud800"`, `"\ud800x"`} {
		_, faults := read(t, `{"person":{"name":`+literal+`}}`)
		if len(faults) != 1 || faults[0].Field != "person.name" || faults[0].Code != rules.CodeBadCharacter {
			t.Errorf("%s: %v", literal, faults)
		}
	}
}

func TestRead_StopsExplaining(t *testing.T) {
	t.Parallel()
	body := "{" + strings.Repeat(`"x":1,`, 100_000) + `"title":"a"}`
	if _, faults := read(t, body); len(faults) != rules.MaxFaults {
		t.Errorf("%d faults", len(faults))
	}
	long := strings.Repeat("é", 1000)
	_, faults := read(t, `{"`+long+`":1}`)
	if len(faults) != 1 || len(faults[0].Field) > 128 {
		t.Errorf("the fault repeats a long name completely: %v", faults)
	}
}

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	for body, reason := range map[string]string{
		"":                 "empty",
		" \n":              "empty",
		"{":                "unexpected end",
		`{"a":1}{`:         "after byte",
		`{"a":1} x`:        "after byte",
		`{'a':1}`:          "after byte",
		`{"a":1,}`:         "after byte",
		"{\"a\":\"\n\"}":   "after byte",
		"[]":               "not an array",
		"null":             "not null",
		"1":                "not a number",
		`"a"`:              "not a string",
		"true":             "not a boolean",
		"{\"a\":\"\xff\"}": "the body is not valid UTF-8 in a (after byte 7)",
		" {\"emails\":[{\"to\":\"a\"},{\"to\":\"b\",\"recipient\":{\"nome\":\"Jos\xe9\"}}]}": "the body is not valid UTF-8 in emails[1].recipient.nome (after byte 58)",
		"{\"a\":{\"\xff\":1}}": "the body is not valid UTF-8 in a (after byte 8)",
		"{\"a\":\"\xff":        "the body is not valid UTF-8 (after byte 7)",
		"{\"a\":1,\xff}":       "the body is not valid UTF-8 (after byte 8)",
		"\ufeff":               "empty",
		"{}\ufeff":             "after byte",
		"\xff\xfe{\x00}\x00":   "UTF-16",
	} {
		_, err := strictjson.Parse([]byte(body))
		var syntax *strictjson.SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), reason) {
			t.Errorf("Parse(%q) = %v, want a reason containing %q", body, err, reason)
		}
	}
}

func TestSHA256_SameMeaning(t *testing.T) {
	t.Parallel()
	sum := func(body string) [32]byte {
		document, err := strictjson.Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		s, err := document.SHA256()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	base := sum(`{"a":"é/\n","b":[1,{"x":null,"y":true}]}`)
	for _, same := range []string{
		` { "b" : [ 1 , { "y" : true , "x" : null } ] , "a" : "\u00e9\/\u000a" } `,
		`{"\u0062":[1,{"x":null,"y":true}],"a":"é/\n"}`,
	} {
		if sum(same) != base {
			t.Errorf("%s has another sum", same)
		}
	}
	for _, other := range []string{
		`{"a":"é/\n","b":[1.0,{"x":null,"y":true}]}`, `{"a":"é/\n","b":[{"x":null,"y":true},1]}`,
		`{"a":"é/","b":[1,{"x":null,"y":true}]}`, `{"a":"é/\n"}`, `{"a":"é/\n","b":"[1,{\"x\":null,\"y\":true}]"}`,
	} {
		if sum(other) == base {
			t.Errorf("%s has the same sum", other)
		}
	}
	deep, err := strictjson.Parse([]byte(strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deep.SHA256(); err == nil {
		t.Error("a sum of a document 5000 deep")
	}
}

func TestNewReader_RefusesTypes(t *testing.T) {
	t.Parallel()
	if _, err := strictjson.NewReader[struct {
		A float64 `json:"a"`
	}](); err == nil {
		t.Error("NewReader accepts a type with a float")
	}
	if _, err := strictjson.NewReader[struct{ A string }](); err == nil {
		t.Error("NewReader accepts a field without a name")
	}
}

// FuzzRead compares Read with encoding/json: documents accepted by both have the same result. sameHoweverWritten:
// the sum of a body does not depend on white space and escapes.
func sameHoweverWritten(t *testing.T, document strictjson.Document, body []byte) {
	t.Helper()
	sum, err := document.SHA256()
	if err != nil {
		return
	}
	var indented, escaped bytes.Buffer
	if err := json.Indent(&indented, body, " ", "\t"); err != nil {
		t.Fatal(err)
	}
	json.HTMLEscape(&escaped, body) // <, >, & and two line separators
	for _, other := range [][]byte{indented.Bytes(), escaped.Bytes()} {
		again, err := strictjson.Parse(other)
		if err != nil {
			t.Fatalf("%q is refused, %q is not: %v", other, body, err)
		}
		if got, err := again.SHA256(); err != nil || got != sum {
			t.Errorf("%q and %q have different sums, %v", body, other, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"title":"a","tags":["b"],"headers":{"c":"d"},"person":{"name":"e"},"priority":5,"urgent":false}`,
		`{"a":1,"a":2}`, `{} {}`, "\ufeff{}", `{"a":"\u00zz"}`, `{"a":1e999}`, "{\"a\":\"\x01\"}", `{"a":"\udc00"}`, "{\"a\":\"\xff\"}",
		strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000), strings.Repeat(`{"a":`, 10_001) + "1" + strings.Repeat("}", 10_001),
		`{"title":"\ud83d\ude00\\\"","tags":[]}`, `{"TITLE":"a"}`, `{"title":"\ud800"}`, `[{}]`, `{"a":[[[]]],"title":""}`,
	} {
		f.Add([]byte(seed))
	}
	reader, err := strictjson.NewReader[order]()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		document, err := strictjson.Parse(body)
		body = bytes.TrimPrefix(body, []byte("\ufeff"))
		object := utf8.Valid(body) && json.Valid(body) && bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{"))
		if (err == nil) != object {
			t.Errorf("%q: %v; encoding/json: an object %t", body, err, object)
		}
		if err != nil {
			return
		}
		sameHoweverWritten(t, document, body)
		got, faults := reader.Read(document)
		if len(faults) > 0 {
			return
		}
		var want order
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("encoding/json refuses %q: %v", body, err)
		}
		blankIsAbsent(&want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-encoding/json +ours):\n%s", body, diff)
		}
	})
}

// blankIsAbsent applies Read's rule for blank texts.
func blankIsAbsent(o *order) {
	blank := func(text *string) {
		if email.IsBlank(*text) {
			*text = ""
		}
	}
	blank(&o.Title)
	for i := range o.Tags {
		blank(&o.Tags[i])
	}
	if o.Person != nil {
		blank(&o.Person.Name)
	}
	maps.DeleteFunc(o.Headers, func(_, value string) bool { return email.IsBlank(value) })
}

// Blank texts count as missing in every field.
func TestRead_Blank(t *testing.T) {
	t.Parallel()
	type request struct {
		Text   string            `json:"text"`
		Given  *string           `json:"given"`
		Filter *string           `json:"filter" blank:"refused"`
		Note   *string           `json:"note" blank:"removes"`
		List   []string          `json:"list"`
		Map    map[string]string `json:"map"`
	}
	reader, err := strictjson.NewReader[request]()
	if err != nil {
		t.Fatal(err)
	}
	for _, blank := range []string{``, ` `, `\t`, `\u00a0`, `\u200b`, `\ufeff \u2060`, "\u3000"} {
		document, err := strictjson.Parse([]byte(strings.ReplaceAll(`{"text":"_","given":"_","note":"_","list":["a","_","b"],"map":{"x":"_","y":" c "}}`, "_", blank)))
		if err != nil {
			t.Fatal(err)
		}
		got, faults := reader.Read(document)
		if diff := cmp.Diff(request{Note: new(""), List: []string{"a", "", "b"}, Map: map[string]string{"y": " c "}}, got); diff != "" || len(faults) > 0 {
			t.Errorf("%q: %v (-want +got)\n%s", blank, faults, diff)
		}
		if document, err = strictjson.Parse([]byte(`{"filter":"` + blank + `"}`)); err != nil {
			t.Fatal(err)
		}
		if _, faults := reader.Read(document); len(faults) != 1 || faults[0].Field != "filter" || faults[0].Code != rules.CodeRequired {
			t.Errorf("a filter of %q: %v", blank, faults)
		}
	}
	document, err := strictjson.Parse([]byte("\ufeff{\"text\":\" a \",\"filter\":\"b\"}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, faults := reader.Read(document); got.Text != " a " || got.Filter == nil || got.Note != nil || len(faults) > 0 {
		t.Errorf("%+v %v", got, faults)
	}
	if document, err = strictjson.Parse([]byte(`{"note":null}`)); err != nil {
		t.Fatal(err)
	}
	if got, faults := reader.Read(document); got.Note != nil || len(faults) != 1 || faults[0].Message != `must be a string, not null: "" removes it` {
		t.Errorf("null: %+v %v", got, faults)
	}
}

func BenchmarkRead(b *testing.B) {
	reader, err := strictjson.NewReader[order]()
	if err != nil {
		b.Fatal(err)
	}
	title, err := json.Marshal(strings.Repeat(`<p class="x">Olá</p>`+"\n", 100))
	if err != nil {
		b.Fatal(err)
	}
	body := []byte(`{"title":` + string(title) + `,"tags":["a","b"],"headers":{"X-A":"1"},"person":{"name":"Ana"},"priority":5}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		document, err := strictjson.Parse(body)
		if err != nil {
			b.Fatal(err)
		}
		if _, faults := reader.Read(document); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}

func TestDocument_Has(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		`{}`: false, `{"a": 1}`: false, `{"a": {"list": []}}`: false, `{"a": "list"}`: false, `{"List": 1}`: false,
		`{"list": null}`: true, `{"a": [1, {"b": "}"}], "list": []}`: true, `{"l\u0069st": 1}`: true,
	} {
		d, err := strictjson.Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Has("list"); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}
