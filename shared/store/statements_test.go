package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is this package as it is written: which method runs which statements. Names
// are followed without types, so a method may seem to run a little more than it does.
type source struct {
	uses  map[string][]string // by the name of a function, or of a method or field with a dot before it: the names it mentions
	value map[string]ast.Expr // constants
	file  map[string]string   // variables that a file is embedded into
	// bodies are those of all functions and methods.
	bodies []ast.Node
}

func readSource(tb testing.TB) source {
	tb.Helper()
	s := source{uses: map[string][]string{}, value: map[string]ast.Expr{}, file: map[string]string{}}
	files, err := os.ReadDir(".")
	if err != nil {
		tb.Fatal(err)
	}
	for _, entry := range files {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, parser.ParseComments)
		if err != nil {
			tb.Fatal(err)
		}
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = "." + name
				}
				s.uses[name] = append(s.uses[name], namesIn(d.Body)...)
				s.bodies = append(s.bodies, d.Body)
				if d.Name.Name == "Open" {
					s.prepared(d.Body)
				}
			case *ast.GenDecl:
				s.constants(d)
				s.embedded(tb, d)
			}
		}
	}
	return s
}

func (s source) constants(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		values, ok := spec.(*ast.ValueSpec)
		if !ok || len(values.Values) != len(values.Names) {
			continue
		}
		for i, name := range values.Names {
			s.value[name.Name] = values.Values[i]
		}
	}
}

// embedded reads the file that stands above a variable's declaration.
func (s source) embedded(tb testing.TB, d *ast.GenDecl) {
	tb.Helper()
	if d.Tok != token.VAR || d.Doc == nil {
		return
	}
	for _, line := range d.Doc.List {
		path, ok := strings.CutPrefix(line.Text, "//go:embed ")
		if !ok {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		for _, name := range d.Specs[0].(*ast.ValueSpec).Names {
			s.file[name.Name] = string(text)
		}
	}
}

// prepared are the fields of a Store that hold a statement.
func (s source) prepared(open ast.Node) {
	ast.Inspect(open, func(n ast.Node) bool {
		if field, ok := n.(*ast.KeyValueExpr); ok {
			if name, ok := field.Key.(*ast.Ident); ok && strings.HasSuffix(name.Name, "Email") {
				s.uses["."+name.Name] = namesIn(field.Value)
			}
		}
		return true
	})
}

// namesIn are the names that a part of the source mentions, those behind a dot with it.
func namesIn(n ast.Node) []string {
	var names []string
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			names = append(append(names, "."+n.Sel.Name), namesIn(n.X)...)
			return false
		case *ast.Ident:
			names = append(names, n.Name)
		}
		return true
	})
	return names
}

var begins = regexp.MustCompile(`^(?:\s|--.*\n)*(SELECT|WITH|INSERT|UPDATE|DELETE|COPY)\b`)

// statements are those that the methods run, by the names of their constants and variables.
func (s source) statements(tb testing.TB, methods ...string) map[string]string {
	tb.Helper()
	found, seen := map[string]string{}, map[string]bool{}
	var follow func(name string)
	follow = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if text, ok := s.file[name]; ok {
			found[name] = text
			return
		}
		if _, ok := s.value[name]; ok {
			if text, ok := s.text(name); ok && begins.MatchString(text) {
				found[name] = text
			}
			return
		}
		for _, used := range s.uses[name] {
			// What every Store has, and names that several types have: callers names those.
			if !slices.Contains([]string{".Close", "Open", ".Ping", ".run", ".flush", ".add"}, used) {
				follow(used)
			}
		}
	}
	for _, method := range methods {
		name := "." + method
		if s.uses[name] == nil {
			name = method // a function, for a transaction that is not ours
		}
		if s.uses[name] == nil {
			tb.Errorf("there is no method %s", method)
		}
		follow(name)
	}
	return found
}

// text evaluates a constant: literals, other constants, and sums of them.
func (s source) text(name string) (string, bool) {
	var eval func(ast.Expr) (string, bool)
	eval = func(e ast.Expr) (string, bool) {
		switch e := e.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(e.Value)
			return text, err == nil && e.Kind == token.STRING
		case *ast.Ident:
			if value, ok := s.value[e.Name]; ok {
				return eval(value)
			}
		case *ast.ParenExpr:
			return eval(e.X)
		case *ast.BinaryExpr:
			left, ok := eval(e.X)
			right, ok2 := eval(e.Y)
			return left + right, ok && ok2 && e.Op == token.ADD
		}
		return "", false
	}
	return eval(s.value[name])
}

func methodsOf(value any) []string {
	var names []string
	for method := range reflect.TypeOf(value).Methods() {
		names = append(names, method.Name)
	}
	return names
}
