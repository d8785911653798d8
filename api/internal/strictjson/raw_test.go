package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/rules"
)

type rawRequest struct {
	Data json.RawMessage `json:"data"`
	List []struct {
		Default json.RawMessage `json:"default"`
	} `json:"list"`
}

func readRaw(t *testing.T, body string) (rawRequest, []rules.Fault) {
	t.Helper()
	reader, err := strictjson.NewReader[rawRequest]()
	if err != nil {
		t.Fatal(err)
	}
	document, err := strictjson.Parse([]byte(body))
	if err != nil {
		t.Fatalf("Parse(%q): %v", body, err)
	}
	return reader.Read(document)
}

// The strings and names of a raw value are checked as those of other fields.
func TestRead_RawBadCharacters(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		`{"data":"a\ud83d"}`:             {"data"},
		`{"data":"\u0000"}`:              {"data"},
		`{"data":{"nome":"Ana \ud83d"}}`: {"data.nome"},
		`{"data":{"a":{"b":[{"c":"x"},[1,"\udc00"]]},"d":"\ud83d"}}`:                     {"data.a.b[1][1]", "data.d"},
		`{"data":{ "a" : [ "x" , { } , [ ] , "\ud83d" ] , "b" : "," , "c" : "\u0000" }}`: {"data.a[3]", "data.c"},
		`{"data":{"a\ud83d":1}}`:                                {"data"},
		`{"data":{"x":{"\u0000":[]}}}`:                          {"data.x"},
		`{"data":["\ud83d\ude00","\ude00\ud83d"]}`:              {"data[1]"},
		`{"list":[{"default":1},{"default":{"x":"\ud83d"}}]}`:   {"list[1].default.x"},
		`{"data":{"a":"\\u0000 \\ud83d","b":"\ud83d\ude00 😀"}}`: nil,
		`{"data":null}`:                       nil,
		`{"data":[{},[],{"a":[]},"",0,true]}`: nil,
	} {
		got, faults := readRaw(t, body)
		var fields []string
		for _, f := range faults {
			if f.Code != rules.CodeBadCharacter || f.Message == "" {
				t.Errorf("%s: %+v", body, f)
			}
			fields = append(fields, f.Field)
		}
		if diff := cmp.Diff(want, fields); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", body, diff)
		}
		if strings.HasPrefix(body, `{"data"`) && (got.Data == nil) != (want != nil) {
			t.Errorf("%s: the field is %q", body, got.Data)
		}
	}
}

// A raw value is returned as written.
func TestRead_RawAsWritten(t *testing.T) {
	t.Parallel()
	got, faults := readRaw(t, `{"data": { "a" : [1.50, "\u00e9"] } }`)
	if string(got.Data) != `{ "a" : [1.50, "\u00e9"] }` || len(faults) > 0 {
		t.Errorf("%s %v", got.Data, faults)
	}
}

// The client chooses the depth of a raw value: its check is linear, and the path of a fault is short.
func TestRead_RawDeep(t *testing.T) {
	t.Parallel()
	const depth = 9000
	for open, shut := range map[string]string{`[`: `]`, `{"a":`: `}`} {
		_, faults := readRaw(t, `{"data":`+strings.Repeat(open, depth)+`"\ud83d"`+strings.Repeat(shut, depth)+`}`)
		if len(faults) != 1 || faults[0].Code != rules.CodeBadCharacter || len(faults[0].Field) > 100 || !strings.HasPrefix(faults[0].Field, "data") {
			t.Errorf("%s: %d faults: %.300v", open, len(faults), faults)
		}
	}
	_, faults := readRaw(t, `{"data":[`+strings.Repeat(`"\ud83d",`, 1000)+`1]}`)
	if len(faults) != rules.MaxFaults {
		t.Errorf("%d faults", len(faults))
	}
}
