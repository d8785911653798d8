package httpapi_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/google/go-cmp/cmp"

	"email-gateway/api"
)

// load reads openapi.yaml.
func load() *openapi3.T {
	d, err := openapi3.NewLoader().LoadFromData([]byte(api.OpenAPI()))
	if err != nil {
		panic(err)
	}
	return d
}

// document is openapi.yaml with the servers of mailings, and with closed responses: a field or value that a response has and
// the document lacks is an error of the document. In openapi.yaml itself responses are open, since clients that
// generators make of it must accept the fields and values that a later version adds.
var document = sync.OnceValue(func() *openapi3.T {
	d := load()
	for path, item := range d.Paths.Map() {
		if strings.HasPrefix(path, "/mailings") {
			item.Servers = openapi3.Servers{{URL: "/"}, {URL: "/v1"}} // every path of mailings is also available under /v1
		}
	}
	for schema := range responseSchemas(d) {
		closeSchema(schema)
	}
	return d
})

// closeSchema allows only the fields that the schema has, and only the strings that it lists as examples.
func closeSchema(s *openapi3.Schema) {
	if len(s.AllOf) > 0 { // each of the parts would refuse the fields of the others
		s.Properties = openapi3.Schemas{}
	}
	for _, part := range s.AllOf {
		s.Type, s.Required = part.Value.Type, append(s.Required, part.Value.Required...)
		maps.Copy(s.Properties, part.Value.Properties)
	}
	s.AllOf = nil
	if len(s.Properties) > 0 {
		s.AdditionalProperties.Has = new(bool)
	}
	if s.Type.Is("string") {
		s.Enum = s.Examples
	}
}

// responseSchemas returns the schemas of all bodies of responses and those that they refer to, with the place of a use.
func responseSchemas(d *openapi3.T) map[*openapi3.Schema]string {
	found := map[*openapi3.Schema]string{}
	var visit func(place string, ref *openapi3.SchemaRef)
	visit = func(place string, ref *openapi3.SchemaRef) {
		if ref == nil || found[ref.Value] != "" {
			return
		}
		found[ref.Value] = place
		visit(place+"[]", ref.Value.Items)
		visit(place+"{}", ref.Value.AdditionalProperties.Schema)
		for name, property := range ref.Value.Properties {
			visit(place+"."+name, property)
		}
		for _, part := range slices.Concat(ref.Value.AllOf, ref.Value.AnyOf, ref.Value.OneOf) {
			visit(place, part)
		}
	}
	for path, item := range d.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				for _, media := range response.Value.Content {
					visit(method+" "+path+" "+status, media.Schema)
				}
			}
		}
	}
	return found
}

// router finds the document's operation for a request.
var router = sync.OnceValue(func() routers.Router {
	for _, media := range []string{"text/html", "application/yaml"} { // are strings to the document
		openapi3filter.RegisterBodyDecoder(media, openapi3filter.PlainBodyDecoder)
	}
	r, err := gorillamux.NewRouter(document())
	if err != nil {
		panic(err)
	}
	return r
})

// described calls f with every operation of openapi.yaml, once for each server of its path.
func described(f func(method, path string, o *openapi3.Operation)) {
	for path, item := range document().Paths.Map() {
		servers := item.Servers
		if len(servers) == 0 {
			servers = document().Servers
		}
		for _, server := range servers {
			for method, o := range item.Operations() {
				f(method, strings.TrimSuffix(server.URL, "/")+path, o)
			}
		}
	}
}

// holdToContract fails the test if openapi.yaml does not describe the response: status, headers, media
// type, every field of the body, and the code of a problem.
func holdToContract(tb testing.TB, method, path string, r reply) {
	tb.Helper()
	if r.Header.Get("X-Request-Id") == "" {
		tb.Errorf("%s %s: no X-Request-Id", method, path)
	}
	address, err := url.Parse("http://gateway" + path)
	if err != nil {
		tb.Errorf("%s %s: %v", method, path, err)
		return
	}
	request := &http.Request{Method: method, URL: address, Host: address.Host}
	route, _, err := router().FindRoute(request)
	if err != nil {
		route = &routers.Route{Spec: document(), Operation: unrouted(path)}
	}
	err = openapi3filter.ValidateResponse(tb.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, Route: route},
		Status:                 r.Status, Header: r.Header, Body: io.NopCloser(strings.NewReader(r.Body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		tb.Errorf("%s %s: %d: %v\n%s", method, path, r.Status, err, r.Body)
	}
	if route.Operation.OperationID != "" && route.Operation.Security == nil && r.Header.Get("Cache-Control") != "no-store" {
		tb.Errorf("%s %s: %d: a cache may give the response to other companies: Cache-Control is %q", method, path, r.Status, r.Header.Get("Cache-Control"))
	}
	if described := route.Operation.Responses.Status(r.Status); described != nil && r.Status >= http.StatusBadRequest {
		holdToCodes(tb, method+" "+path, r, *described.Value.Description)
	}
}

// holdToCodes fails the test if the description of a response does not name the code of the problem.
func holdToCodes(tb testing.TB, request string, r reply, description string) {
	tb.Helper()
	var p struct{ Code string }
	if json.Unmarshal([]byte(r.Body), &p) == nil && p.Code != "" && !strings.Contains(description, "`"+p.Code+"`") {
		tb.Errorf("%s: openapi.yaml does not describe the code: %d %s", request, r.Status, r.Body)
	}
}

// unrouted describes the responses to requests without a route.
func unrouted(path string) *openapi3.Operation {
	name := "NotFound"
	if strings.HasPrefix(path, "/u/") {
		name = "UnsubscribeFailed"
	}
	return &openapi3.Operation{Responses: openapi3.NewResponses(openapi3.WithName("default", document().Components.Responses[name].Value))}
}

func TestContract_HasEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	var all []string
	served := start(t, nil).Routes
	described(func(method, path string, _ *openapi3.Operation) { all = append(all, method+" "+path) })
	slices.Sort(served)
	slices.Sort(all)
	if diff := cmp.Diff(all, served); diff != "" {
		t.Errorf("(-openapi.yaml +routes)\n%s", diff)
	}
}

// Generators create a type for each name and a function for each operation, so names must be unique.
func TestContract_NamesAreDistinct(t *testing.T) {
	t.Parallel()
	used := map[string]string{}
	take := func(name, place string) {
		name = strings.ToLower(name)
		if other, twice := used[name]; twice {
			t.Errorf("%s is a name both in %s and in %s", name, other, place)
		}
		used[name] = place
	}
	for name := range document().Components.Schemas {
		take(name, "schemas")
	}
	for name := range document().Components.Responses {
		take(name, "responses")
	}
	for name := range document().Components.Headers {
		take(name, "headers")
	}
	for _, found := range regexp.MustCompile(`operationId: (\w+)`).FindAllStringSubmatch(api.OpenAPI(), -1) {
		take(found[1], "operations")
	}
	// openapi-typescript makes a field with a default a required one, in requests too.
	if _, schemas, _ := strings.Cut(api.OpenAPI(), "\n  schemas:\n"); strings.Contains(schemas, "default:") {
		t.Error("a schema has a default: write it in the description instead")
	}
	if len(used) < 80 {
		t.Errorf("only %d names", len(used))
	}
}

// References resolve, and examples match their schemas.
func TestContract_IsValid(t *testing.T) {
	t.Parallel()
	if err := document().Validate(t.Context()); err != nil {
		t.Error(err)
	}
	described(func(method, path string, o *openapi3.Operation) {
		if o.OperationID == "" || o.Summary == "" {
			t.Errorf("%s %s has no name or summary", method, path)
		}
	})
}

// openapi.yaml must state which values chosen by the caller are stored in plain text.
func TestContract_StatesWhatIsStoredInPlainText(t *testing.T) {
	t.Parallel()
	d := document()
	for place, description := range map[string]string{
		"info": d.Info.Description, "IdempotencyKey": d.Components.Parameters["IdempotencyKey"].Value.Description,
		"RequestIdEcho": d.Components.Headers["RequestIdEcho"].Value.Description, "Aggregate": d.Components.Schemas["Aggregate"].Value.Description,
		"Recipient":    d.Components.Schemas["Recipient"].Value.Properties["externalId"].Value.Description,
		"NewRecipient": d.Components.Schemas["NewRecipient"].Value.Properties["externalId"].Value.Description,
	} {
		if !strings.Contains(description, "in plain text") || !strings.Contains(strings.Join(strings.Fields(description), " "), "do not put a CPF") {
			t.Errorf("the description of %s does not tell callers to leave CPF and CNPJ numbers out: %s", place, description)
		}
	}
}

// Clients of a previous release must be able to read responses with fields and values that were added since.
func TestContract_ResponsesAreOpen(t *testing.T) {
	t.Parallel()
	schemas := responseSchemas(load())
	for s, place := range schemas {
		if closed := s.AdditionalProperties.Has; closed != nil && !*closed {
			t.Errorf("%s refuses further fields: remove additionalProperties", place)
		}
		if s.Enum != nil || s.Const != nil {
			t.Errorf("%s refuses further values: list them as examples", place)
		}
	}
	if len(schemas) < 300 {
		t.Errorf("only %d schemas", len(schemas))
	}
}

// A request names all values that a parameter or field may have, since others are refused: it must not share the open schema of a
// response.
func TestContract_RequestsAreClosed(t *testing.T) {
	t.Parallel()
	d := load()
	open := responseSchemas(d)
	check := func(place string, s *openapi3.SchemaRef) {
		if open[s.Value] != "" && s.Value.Type.Is("string") && len(s.Value.Examples) > 1 {
			t.Errorf("%s has the open schema of a response: list its values as enum", place)
		}
	}
	for path, item := range d.Paths.Map() {
		for method, operation := range item.Operations() {
			for _, p := range operation.Parameters {
				check(method+" "+path+" "+p.Value.Name, p.Value.Schema)
			}
			if operation.RequestBody == nil {
				continue
			}
			for _, media := range operation.RequestBody.Value.Content {
				for name, property := range media.Schema.Value.Properties {
					check(method+" "+path+" "+name, property)
				}
			}
		}
	}
	values := func(schema string) []any { return d.Components.Schemas[schema].Value.Examples }
	for place, want := range map[string][]any{
		"/v1/emails status": values("Status"), "/v1/emails delivery": values("DeliveryState"),
		"/v1/suppressions reason": values("SuppressionReason"), "/v1/dead-letters target": values("LetterTarget"),
		"/v1/webhooks/{id}/deliveries status": values("WebhookDeliveryStatus"),
		"/mailings/{id}/entries status":       values("EntryStatus"), "/mailings/{id}/rows status": values("RowStatus"),
	} {
		path, name, _ := strings.Cut(place, " ")
		if got := d.Paths.Find(path).Get.Parameters.GetByInAndName("query", name); got == nil || !slices.Equal(got.Schema.Value.Enum, want) {
			t.Errorf("%s: %v, want %v", place, got, want)
		}
	}
	for schema, want := range map[string][]any{"SuppressRequest.reason": values("SuppressionReason"), "ReplayRequest.target": values("LetterTarget")} {
		of, name, _ := strings.Cut(schema, ".")
		if got := d.Components.Schemas[of].Value.Properties[name].Value.Enum; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", schema, got, want)
		}
	}
}

// Some generators read an integer without a format into 32 bits, in which the bytes of a quota do not fit.
func TestContract_IntegersHaveAFormat(t *testing.T) {
	t.Parallel()
	for s, place := range responseSchemas(load()) {
		if s.Type.Is("integer") && s.Format != "int32" && s.Format != "int64" {
			t.Errorf("%s is an integer of unknown size: add format: int64, or int32 if it can never be larger", place)
		}
	}
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

// An item of a batch has the fields of a send, except that its attachments are stored files.
func TestContract_BatchItem(t *testing.T) {
	t.Parallel()
	schemas := load().Components.Schemas
	for item, of := range map[string]string{"BatchItem": "SendRequest", "StoredAttachment": "Attachment"} {
		want, got := fieldsOf(t, schemas[of].Value), fieldsOf(t, schemas[item].Value)
		for name, schema := range want {
			switch {
			case name == "content" && got[name] == "", name == "attachments" && got[name] != schema:
			case got[name] != schema:
				t.Errorf("%s.%s is %s, that of a send %s", item, name, got[name], schema)
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Errorf("%s has fields that a send lacks: %v", item, got)
		}
	}
}

// fieldsOf returns the schemas of an object's fields without their descriptions.
func fieldsOf(t *testing.T, object *openapi3.Schema) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for name, field := range object.Properties {
		schema := *field.Value
		schema.Description = ""
		text, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		fields[name] = string(text)
	}
	return fields
}
