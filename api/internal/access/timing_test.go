package access_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"email-gateway/api/internal/access"
	"email-gateway/api/internal/apikey"
)

// The duration of a rejection must not depend on why the key is wrong: for every well-formed wrong key, Authenticate
// does one lookup and one constant-time comparison. The test checks the code, because measured times would prove
// nothing on a busy machine.
func TestAuthenticate_SameCodePathForAllRejections(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "directory.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var body *ast.BlockStmt
	for _, declaration := range file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Name.Name == "Authenticate" {
			body = f.Body
		}
	}
	if body == nil {
		t.Fatal("the function Authenticate was not found")
	}
	looked, compared := token.NoPos, token.NoPos
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch name := called(call); name {
		case "d.find":
			looked = call.Pos()
		case "subtle.ConstantTimeCompare":
			if compared.IsValid() {
				t.Error("Authenticate calls subtle.ConstantTimeCompare twice")
			}
			compared = call.Pos()
		case "bytes.Equal", "bytes.Compare", "reflect.DeepEqual", "strings.Compare", "strings.EqualFold":
			t.Errorf("Authenticate calls %s, which does not take constant time", name)
		}
		return true
	})
	if !looked.IsValid() || compared < looked {
		t.Fatal("the result of the lookup is not compared with subtle.ConstantTimeCompare")
	}
	// Between the lookup and the comparison, Authenticate may return only the database's error.
	returns, words := 0, 0
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			if n.Pos() > looked && n.Pos() < compared {
				returns++
				if id, ok := n.Results[1].(*ast.Ident); !ok || id.Name != "err" {
					t.Errorf("Authenticate rejects a key before the comparison, at offset %d", n.Pos())
				}
			}
		case *ast.BinaryExpr:
			if selector, ok := n.X.(*ast.SelectorExpr); ok && (selector.Sel.Name == "Secret" || selector.Sel.Name == "SecretSHA256") {
				words++
			}
		}
		return true
	})
	if returns != 1 || words != 0 {
		t.Errorf("%d returns between lookup and comparison, want 1; %d comparisons of a secret with an operator, want 0", returns, words)
	}
}

func called(call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := selector.X.(*ast.Ident); ok {
		return x.Name + "." + selector.Sel.Name
	}
	return selector.Sel.Name
}

// The database is queried equally often for an unknown id and for a wrong secret: once, and then not for five
// seconds.
func TestAuthenticate_SameQuestionsForAllRefusals(t *testing.T) {
	t.Parallel()
	stranger, err := apikey.New("dev")
	if err != nil {
		t.Fatal(err)
	}
	_, known := newKeys(t)
	for name, wrong := range map[string]apikey.Key{
		"unknown id":   stranger,
		"wrong secret": {Environment: "dev", ID: known.ID, Secret: stranger.Secret},
	} {
		finder, key := newKeys(t)
		if wrong.ID == known.ID {
			wrong.ID = key.ID
		}
		d := access.NewDirectory(finder)
		for range 5 {
			if _, err := d.Authenticate(t.Context(), wrong.String()); !errors.Is(err, access.ErrUnknownKey) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := finder.queries.Load(); n != 1 {
			t.Errorf("%s: %d database queries, want 1", name, n)
		}
	}
}
