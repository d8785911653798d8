package strictjson_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/draft"
	"email-gateway/shared/rules"
)

type lists struct {
	Ruled    []string          `json:"ruled" validate:"max=1000,dive,max=3"`
	Entries  []string          `json:"entries" validate:"entries=5,dive,omitempty,max=64"`
	Tagged   []person          `json:"tagged" most:"10"`
	Free     []person          `json:"free" validate:"dive,max=7"`
	Pointer  *[]string         `json:"pointer" validate:"omitnil,max=50"`
	Map      map[string]string `json:"map" validate:"max=10,dive,keys,max=3,endkeys,max=4"`
	FreeMap  map[string]string `json:"freeMap"`
	Priority *int              `json:"priority" validate:"omitnil,max=100000"`
}

// document returns {"field":[entry,entry,…]}, or an object if the entry has a name, in which a # is replaced by the index.
func document(t *testing.T, field, entry string, n int) strictjson.Document {
	t.Helper()
	open, shut := "[", "]"
	if strings.Contains(entry, `":`) && entry[0] == '"' {
		open, shut = "{", "}"
	}
	var list strings.Builder
	if before, after, indexed := strings.Cut(entry, "#"); indexed {
		for i := range n {
			list.WriteString(before + strconv.Itoa(i) + after + ",")
		}
	} else {
		list.WriteString(strings.Repeat(entry+",", n))
	}
	d, err := strictjson.Parse([]byte(`{"` + field + `":` + open + strings.TrimSuffix(list.String(), ",") + shut + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// An array or map of more than 10,000 entries is one fault of its field, with the limit of the field's own rule. A
// shorter one is decoded completely and left to that rule.
func TestRead_TooManyEntries(t *testing.T) {
	t.Parallel()
	reader, err := strictjson.NewReader[lists]()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		field, entry string
		limit        int
	}{
		{"ruled", `"a"`, 1000},
		{"entries", `"a"`, 5},
		{"entries", `""`, 5}, // even if none of them would count
		{"tagged", `{}`, 10},
		{"free", `{"name":"a"}`, 10_000},
		{"pointer", `"a"`, 50},
		{"map", `"k#":"v"`, 10},
		{"map", `"k#":" "`, 10},
		{"freeMap", `"k#":"v"`, 10_000},
	} {
		got, faults := reader.Read(document(t, tt.field, tt.entry, 10_000))
		if len(faults) > 0 {
			t.Errorf("10,000 of %s: %v", tt.field, faults)
		}
		n := len(got.Ruled) + len(got.Entries) + len(got.Tagged) + len(got.Free) + len(got.Map) + len(got.FreeMap)
		if got.Pointer != nil {
			n += len(*got.Pointer)
		}
		if blank := strings.Contains(tt.entry, `" "`); n != 10_000 && !blank {
			t.Errorf("10,000 of %s: %d were read", tt.field, n)
		}
		for _, n := range []int{10_001, 20_000} {
			_, faults := reader.Read(document(t, tt.field, tt.entry, n))
			want := fmt.Sprintf("must have at most %d entries", tt.limit)
			if len(faults) != 1 || faults[0] != (rules.Fault{Field: tt.field, Code: rules.CodeTooMany, Message: want}) {
				t.Errorf("%d of %s: %v", n, tt.field, faults)
			}
		}
	}
}

// The rule of a field must not allow more entries than Read decodes.
func TestNewReader_LimitOfEntries(t *testing.T) {
	t.Parallel()
	if _, err := strictjson.NewReader[struct {
		A []string `json:"a" validate:"max=10001,dive"`
	}](); err == nil {
		t.Error("max=10001 was accepted")
	}
	if _, err := strictjson.NewReader[struct {
		A *[]string `json:"a" validate:"omitnil,entries=x"`
	}](); err == nil {
		t.Error("entries=x was accepted")
	}
}

// The memory for an array or map does not grow with the number of its entries. This test is not parallel, because it
// measures what the process allocates.
func TestRead_MemoryOfEntries(t *testing.T) { //nolint:paralleltest // see above
	reader, err := strictjson.NewReader[draft.Email]()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ field, entry string }{
		{"attachments", `{}`}, {"cc", `""`}, {"tags", `"a"`}, {"headers", `"#":""`}, {"headers", `"":""`},
	} {
		d := document(t, tt.field, tt.entry, 300_000)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, faults := reader.Read(d)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4<<20 {
			t.Errorf("%s of %s: %d KiB", tt.field, tt.entry, allocated>>10)
		}
		if len(faults) == 0 {
			t.Errorf("%s of %s: no fault", tt.field, tt.entry)
		}
	}
	// The hash of a body sorts the fields of each object.
	d := document(t, "headers", `"#":""`, 300_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = d.SHA256()
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; err == nil || allocated > 30<<20 {
		t.Errorf("hash: %d KiB, %v", allocated>>10, err)
	}
}
