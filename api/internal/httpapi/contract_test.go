package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/api"
)

// node is a part of the OpenAPI document.
type node = map[string]any

// document is openapi.yaml, parsed once. A path that has servers of its own stands under each
// of them.
var document = sync.OnceValue(func() node {
	var d node
	if err := yaml.Unmarshal([]byte(api.OpenAPI()), &d); err != nil {
		panic(err)
	}
	paths, _ := d["paths"].(node)
	for path, item := range maps.Clone(paths) {
		operations, _ := item.(node)
		servers, _ := operations["servers"].([]any)
		delete(operations, "servers")
		for _, server := range servers {
			base, _ := server.(node)["url"].(string)
			paths[strings.TrimPrefix(base, "http://127.0.0.1:8080")+path] = operations
		}
	}
	return d
})

// at follows keys from n on, through references.
func at(n any, keys ...string) any {
	for _, key := range keys {
		values, _ := resolve(n).(node)
		n = values[key]
	}
	return resolve(n)
}

func resolve(n any) any {
	values, _ := n.(node)
	reference, ok := values["$ref"].(string)
	if !ok {
		return n
	}
	return at(document(), strings.Split(strings.TrimPrefix(reference, "#/"), "/")...)
}

func child(n any, keys ...string) node {
	values, _ := at(n, keys...).(node)
	return values
}

// template is the document's path for one that was called.
func template(path string) string {
	path, _, _ = strings.Cut(path, "?")
	if child(document(), "paths", path) != nil {
		return path
	}
	for candidate := range child(document(), "paths") {
		pattern := "^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(candidate), "[^/]+") + "$"
		if regexp.MustCompile(pattern).MatchString(path) {
			return candidate
		}
	}
	return ""
}

// holdToContract fails the test when an answer is not one that openapi.yaml
// describes: status, headers, media type and every field of the body.
func holdToContract(tb testing.TB, method, path string, r reply) {
	tb.Helper()
	if r.Header.Get("X-Request-Id") == "" {
		tb.Errorf("%s %s: no X-Request-Id", method, path)
	}
	operation := child(document(), "paths", template(path), strings.ToLower(method))
	if operation == nil {
		schema := at(document(), "components", "schemas", "Problem")
		checkBody(tb, path, schema, "application/problem+json", r)
		return
	}
	response := child(operation, "responses", fmt.Sprint(r.Status))
	if response == nil {
		tb.Errorf("%s %s: %d is not in the contract: %s", method, path, r.Status, r.Body)
		return
	}
	for name, header := range child(response, "headers") {
		if at(header, "required") == true && r.Header.Get(name) == "" {
			tb.Errorf("%s %s: %d without %s", method, path, r.Status, name)
		}
	}
	contents := child(response, "content")
	got, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	for media, content := range contents {
		if len(contents) == 1 || media == got || contents[got] == nil {
			checkBody(tb, path, at(content, "schema"), media, r)
		}
	}
}

func checkBody(tb testing.TB, path string, schema any, media string, r reply) {
	tb.Helper()
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != media {
		tb.Errorf("%s: %d is %q, want %s", path, r.Status, r.Header.Get("Content-Type"), media)
		return
	}
	if !strings.HasSuffix(media, "json") {
		return
	}
	var value any
	if err := json.Unmarshal([]byte(r.Body), &value); err != nil {
		tb.Errorf("%s: %v", path, err)
		return
	}
	for _, complaint := range complaints("body", schema, value) {
		tb.Errorf("%s: %d: %s\n%s", path, r.Status, complaint, r.Body)
	}
}

// complaints holds a value to as much of JSON Schema as the document uses.
func complaints(where string, schema, value any) []string {
	s, _ := resolve(schema).(node)
	var found []string
	complain := func(format string, args ...any) { found = append(found, where+" "+fmt.Sprintf(format, args...)) }
	if all, ok := s["allOf"].([]any); ok {
		for _, part := range all {
			found = append(found, complaints(where, part, value)...)
		}
	}
	if constant, ok := s["const"]; ok && constant != value {
		complain("is %v, not %v", value, constant)
	}
	if words, ok := s["enum"].([]any); ok && !slices.Contains(words, value) {
		complain("is %v, not in %v", value, words)
	}
	switch s["type"] {
	case "string":
		text, ok := value.(string)
		if !ok {
			complain("is no string: %v", value)
		}
		found = append(found, badFormat(where, s, text)...)
	case "integer":
		if n, ok := value.(float64); !ok || n != float64(int64(n)) {
			complain("is no integer: %v", value)
		}
	case "boolean":
		if _, ok := value.(bool); !ok {
			complain("is no boolean: %v", value)
		}
	case "array":
		list, ok := value.([]any)
		if !ok {
			complain("is no array: %v", value)
		}
		for i, element := range list {
			found = append(found, complaints(fmt.Sprintf("%s[%d]", where, i), s["items"], element)...)
		}
	case "object":
		found = append(found, badObject(where, s, value)...)
	}
	return found
}

func badFormat(where string, s node, text string) []string {
	var err error
	switch s["format"] {
	case "uuid":
		_, err = uuid.Parse(text)
	case "date-time":
		_, err = time.Parse(time.RFC3339, text)
	}
	if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(text) {
		err = fmt.Errorf("%q is not like %s", text, pattern)
	}
	if err != nil {
		return []string{where + " " + err.Error()}
	}
	return nil
}

func badObject(where string, s node, value any) []string {
	object, ok := value.(node)
	if !ok {
		return []string{where + " is no object"}
	}
	var found []string
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := object[name.(string)]; !ok {
			found = append(found, fmt.Sprintf("%s lacks %v", where, name))
		}
	}
	properties := child(s, "properties")
	for name, element := range object {
		property, known := properties[name]
		if known {
			found = append(found, complaints(where+"."+name, property, element)...)
		} else if s["additionalProperties"] == false {
			found = append(found, where+" has an undocumented "+name)
		}
	}
	return found
}

func TestContract_HasEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	var described []string
	served := start(t, nil).Routes
	for path, operations := range child(document(), "paths") {
		for method := range child(operations) {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if diff := cmp.Diff(described, served); diff != "" {
		t.Errorf("(-openapi.yaml +routes)\n%s", diff)
	}
}

// Generators make a type of each name, and a function of each operation: no two may share one.
func TestContract_NamesAreDistinct(t *testing.T) {
	t.Parallel()
	used := map[string]string{}
	take := func(name, place string) {
		name = strings.ToLower(name)
		if other, twice := used[name]; twice {
			t.Errorf("%s is the name of one of the %s and of the %s", name, other, place)
		}
		used[name] = place
	}
	for _, section := range []string{"schemas", "responses", "headers"} {
		for name := range child(document(), "components", section) {
			take(name, section)
		}
	}
	for _, found := range regexp.MustCompile(`operationId: (\w+)`).FindAllStringSubmatch(api.OpenAPI(), -1) {
		take(found[1], "operations")
	}
	// openapi-typescript makes a field with a default a required one, in requests too.
	if _, schemas, _ := strings.Cut(api.OpenAPI(), "\n  schemas:\n"); strings.Contains(schemas, "default:") {
		t.Error("a schema has a default: say it in the description")
	}
	if len(used) < 80 {
		t.Errorf("only %d names", len(used))
	}
}

func TestContract_IsWhole(t *testing.T) {
	t.Parallel()
	for reference := range maps.Keys(referencesIn(document())) {
		if at(document(), strings.Split(strings.TrimPrefix(reference, "#/"), "/")...) == nil {
			t.Errorf("%s leads nowhere", reference)
		}
	}
	for path, operations := range child(document(), "paths") {
		for method := range child(operations) {
			operation := child(operations, method)
			if operation["operationId"] == nil || operation["summary"] == nil {
				t.Errorf("%s %s has no name or summary", method, path)
			}
			for _, example := range child(operation, "requestBody", "content", "application/json", "examples") {
				schema := at(operation, "requestBody", "content", "application/json", "schema")
				for _, complaint := range complaints("example", schema, plain(t, at(example, "value"))) {
					t.Errorf("%s %s: %s", method, path, complaint)
				}
			}
		}
	}
}

// Names that a caller makes up are kept as they are sent, and a caller has to know that.
func TestContract_SaysWhatIsKeptInClear(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"info", "components/parameters/IdempotencyKey", "components/headers/RequestIdEcho", "components/schemas/Aggregate",
		"components/schemas/Recipient/properties/externalId", "components/schemas/NewRecipient/properties/externalId",
	} {
		description, _ := at(document(), append(strings.Split(path, "/"), "description")...).(string)
		if !strings.Contains(description, "in clear") || !strings.Contains(strings.Join(strings.Fields(description), " "), "put no CPF") {
			t.Errorf("%s does not tell callers to keep numbers out of it: %s", path, description)
		}
	}
}

// plain is a YAML value as JSON would have it.
func plain(tb testing.TB, value any) any {
	tb.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		tb.Fatal(err)
	}
	var back any
	if err := json.Unmarshal(text, &back); err != nil {
		tb.Fatal(err)
	}
	return back
}

func referencesIn(n any) map[string]bool {
	found := map[string]bool{}
	switch n := n.(type) {
	case node:
		if reference, ok := n["$ref"].(string); ok {
			found[reference] = true
		}
		for _, value := range n {
			maps.Copy(found, referencesIn(value))
		}
	case []any:
		for _, value := range n {
			maps.Copy(found, referencesIn(value))
		}
	}
	return found
}

func TestContract_IsServed(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	if r := g.do(t, call{Path: "/openapi.yaml", NoKey: true}); r.Body != api.OpenAPI() {
		t.Errorf("%d, %d bytes", r.Status, len(r.Body))
	}
}

// escape is for a query string's values.
func escape(value string) string { return url.QueryEscape(value) }
