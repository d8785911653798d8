package strictjson_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/strictjson"
)

func TestDocument_List(t *testing.T) {
	t.Parallel()
	const most = 4
	for body, want := range map[string]struct {
		n     int
		wrong []string
		fault string
	}{
		`{"emails": [{"to": "a"}, {} ]}`:         {n: 2},
		`{"emails": []}`:                         {},
		`{"emails": [{}, null, 5, {}]}`:          {n: 4, wrong: []string{"emails[1]", "emails[2]"}},
		`{"emails": [{},{},{},{},{},{}]}`:        {n: 6},
		`{}`:                                     {fault: "emails REQUIRED"},
		`{"emails": {}}`:                         {fault: "emails WRONG_TYPE"},
		`{"to": "a"}`:                            {fault: "to UNKNOWN_FIELD"},
		`{"emails": [{}], "mode": 5}`:            {n: 1, fault: "mode UNKNOWN_FIELD"},
		`{"emails": [{}], "emails": [{}, {}]}`:   {n: 1, fault: "emails DUPLICATE_FIELD"},
		`{"\u0065mails": [ {"a": "]}" } , {} ]}`: {n: 2},
	} {
		document, err := strictjson.Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		all, faults := document.List("emails", most)
		var fault string
		for _, f := range faults {
			fault += f.Field + " " + f.Code
		}
		var wrong []string
		for i := range all.Objects {
			if f, found := all.Wrong[i]; found {
				wrong = append(wrong, f.Field)
			}
		}
		if diff := cmp.Diff(want.wrong, wrong); diff != "" || all.Length != want.n || len(all.Objects) != min(want.n, most) || fault != want.fault {
			t.Errorf("%s: %d elements, %d objects, %s\n%s", body, all.Length, len(all.Objects), fault, diff)
		}
	}
}
