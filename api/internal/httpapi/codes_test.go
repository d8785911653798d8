package httpapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"email-gateway/shared/email"
)

// openapi.yaml lists every code that the source gives to a problem or to one of its faults, and no other.
func TestContract_HasEveryCode(t *testing.T) {
	t.Parallel()
	// Other codes in these packages.
	elsewhere := map[string]string{
		"CLIENT_GONE": "the client has disconnected",
		"SYNTAX":      "a validation result", "MISSING_EMAIL": "a validation result", "INVALID_LINK": "a validation result",
		"EMPTY_BODY": "a validation result", "WRONG_FIELD_COUNT": "a validation result",
		"UNCLOSED_QUOTE": "a validation result", "ROW_IN_QUOTES": "a validation result", "NO_UNSUBSCRIBE_URL": "a warning", "SHARED_RECIPIENT": "a warning",
	}
	documented := map[string]bool{}
	for _, schema := range []string{"Problem", "Fault"} {
		for _, code := range examplesOf(t, load().Components.Schemas[schema].Value.Properties["code"].Value) {
			documented[code] = true
		}
	}
	given := codesOf(t, ".", "../strictjson", "../mailing", "../csvfile", "../templates", "../attachment", "../../../shared/rules", "../../../shared/draft",
		"../../../shared/template", "../../../shared/mailmerge")
	for _, code := range []string{email.CodeInvalidEmail, email.CodeInvalidTemplate, email.CodeRecipientNotFound} {
		given[code] = "shared/email/code.go"
	}
	for _, code := range slices.Sorted(maps.Keys(given)) {
		if elsewhere[code] == "" && !documented[code] {
			t.Errorf("%s gives the code %s, which is no example of Problem.code or Fault.code in openapi.yaml", given[code], code)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(documented)) {
		if given[code] == "" {
			t.Errorf("openapi.yaml lists the code %s, which no source file gives", code)
		}
	}
}

func examplesOf(t *testing.T, s *openapi3.Schema) (all []string) {
	t.Helper()
	for _, example := range s.Examples {
		text, _ := example.(string)
		all = append(all, text)
	}
	return all
}

// codesOf returns the codes in the source below the folders, each with a file: values of constants whose names begin with code,
// of fields named Code, and arguments of functions that add faults.
func codesOf(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	found, code := map[string]string{}, regexp.MustCompile(`^[A-Z]+(_[A-Z]+)*$`)
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				for _, value := range codeValues(n) {
					if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
						if text, err := strconv.Unquote(literal.Value); err == nil && code.MatchString(text) {
							found[text] = path
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// codeValues returns the expressions of a node that are codes if they are texts of capital letters.
func codeValues(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.ValueSpec:
		if strings.HasPrefix(strings.ToLower(n.Names[0].Name), "code") {
			return n.Values
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "code") {
			return []ast.Expr{n.Value}
		}
	case *ast.ReturnStmt: // of the rules, which return a code and a message
		if len(n.Results) == 2 {
			return n.Results[:1]
		}
	case *ast.CompositeLit: // of a table of rules
		if len(n.Elts) == 2 {
			return n.Elts[:1]
		}
	case *ast.CallExpr:
		if name := functionOf(n); len(n.Args) >= 2 && (name == "Add" || name == "AddEach" || strings.Contains(strings.ToLower(name), "fault")) {
			return n.Args[:2]
		}
	}
	return nil
}

func functionOf(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}
