package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"email-gateway/shared/email"
)

// symbol is a name that a package declares at its top level, or the name of a method or field with a dot before it.
type symbol struct{ in, name string }

func (s symbol) String() string {
	if s.in == "store" {
		return s.name
	}
	return s.in + "." + s.name
}

// source is this package and those below it as they are written: which method runs which statements. Names
// are followed without types, so a method may seem to run a little more than it does: a method's name is that of
// every type of the package that mentions it, and of the packages that this one imports.
type source struct {
	uses  map[symbol][]symbol // by function, method or field: what it mentions
	value map[symbol]constant
	file  map[symbol]string   // variables that a file is embedded into
	under map[string][]string // by package: the packages below shared/store that it imports
	// bodies are those of all functions and methods.
	bodies []ast.Node
	// public are the exported functions, and methods of exported types, of the packages below this one.
	public []symbol
}

// constant is an expression, and what the names in it mean.
type constant struct {
	value ast.Expr
	scope scope
}

// scope is the file in which a name is used.
type scope struct {
	in      string
	imports map[string]string // by the name in the file: packages below shared/store
}

const storePath = "email-gateway/shared/store"

// sourceFolders are this package's folder and those of the packages below it that programs use.
func sourceFolders(tb testing.TB) (folders []string) {
	tb.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if entry.Name() == "storetest" || entry.Name() == "testdata" {
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if len(files) > 0 {
			folders = append(folders, path)
		}
		return err
	})
	if err != nil || len(folders) < 2 {
		tb.Fatal(folders, err)
	}
	return folders
}

func readSource(tb testing.TB) source {
	tb.Helper()
	s := source{uses: map[symbol][]symbol{}, value: map[symbol]constant{}, file: map[symbol]string{}, under: map[string][]string{}}
	for _, folder := range sourceFolders(tb) {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			tb.Fatal(err)
		}
		parsed := map[*ast.File]scope{}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				tb.Fatal(err)
			}
			parsed[file] = s.scope(file)
		}
		for file, in := range parsed {
			s.read(tb, folder, file, in)
		}
	}
	return s
}

// scope reads the imports of a file.
func (s source) scope(file *ast.File) scope {
	of := scope{in: file.Name.Name, imports: map[string]string{}}
	for _, imported := range file.Imports {
		path, err := strconv.Unquote(imported.Path.Value)
		if err != nil || path != storePath && !strings.HasPrefix(path, storePath+"/") {
			continue
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if !slices.Contains(s.under[of.in], name) {
			s.under[of.in] = append(s.under[of.in], name)
		}
		if imported.Name != nil {
			of.imports[imported.Name.Name] = name
		} else {
			of.imports[name] = name
		}
	}
	return of
}

func (s *source) read(tb testing.TB, folder string, file *ast.File, in scope) {
	tb.Helper()
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			name := symbol{in.in, d.Name.Name}
			if d.Recv != nil {
				name.name = "." + name.name
			}
			s.uses[name] = append(s.uses[name], s.mentioned(in, d.Body)...)
			s.bodies = append(s.bodies, d.Body)
			s.prepared(in, d.Body)
			if d.Name.IsExported() && d.Name.Name != "New" && in.in != "store" && in.in != "pg" {
				s.public = append(s.public, name)
			}
		case *ast.GenDecl:
			s.constants(in, d)
			s.embedded(tb, folder, in, d)
		}
	}
}

func (s source) constants(in scope, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		values, ok := spec.(*ast.ValueSpec)
		if !ok || len(values.Values) != len(values.Names) {
			continue
		}
		for i, name := range values.Names {
			s.value[symbol{in.in, name.Name}] = constant{values.Values[i], in}
		}
	}
}

// embedded reads the file that the go:embed line of a variable's declaration names.
func (s source) embedded(tb testing.TB, folder string, in scope, d *ast.GenDecl) {
	tb.Helper()
	if d.Tok != token.VAR || d.Doc == nil {
		return
	}
	for _, line := range d.Doc.List {
		path, ok := strings.CutPrefix(line.Text, "//go:embed ")
		if !ok {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, path))
		if err != nil {
			tb.Fatal(err)
		}
		for _, name := range d.Specs[0].(*ast.ValueSpec).Names {
			s.file[symbol{in.in, name.Name}] = string(text)
		}
	}
}

// prepared are the fields that a function gives a statement which is prepared: insert: db.Prepare(insertSQL).
func (s source) prepared(in scope, body ast.Node) {
	ast.Inspect(body, func(n ast.Node) bool {
		field, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		name, named := field.Key.(*ast.Ident)
		if call, ok := field.Value.(*ast.CallExpr); ok && named {
			if method, ok := call.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Prepare" {
				key := symbol{in.in, "." + name.Name}
				s.uses[key] = append(s.uses[key], s.mentioned(in, field.Value)...)
			}
		}
		return true
	})
}

// mentioned are the names that a part of a file mentions.
func (s source) mentioned(in scope, n ast.Node) []symbol {
	var names []symbol
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && in.imports[of.Name] != "" {
				names = append(names, symbol{in.imports[of.Name], n.Sel.Name})
				return false
			}
			names = append(names, symbol{in.in, "." + n.Sel.Name})
			for _, imported := range s.under[in.in] {
				names = append(names, symbol{imported, "." + n.Sel.Name})
			}
			names = append(names, s.mentioned(in, n.X)...)
			return false
		case *ast.Ident:
			names = append(names, symbol{in.in, n.Name})
		}
		return true
	})
	return names
}

var begins = regexp.MustCompile(`^(?:\s|--.*\n)*(SELECT|WITH|INSERT|UPDATE|DELETE|COPY)\b`)

// statements are those that the methods run, by the names of their constants and variables. A method of a package
// below this one is named with its package: "event.Page".
func (s source) statements(tb testing.TB, methods ...string) map[string]string {
	tb.Helper()
	found := map[string]string{}
	seen := map[symbol]bool{}
	for _, method := range methods {
		name := symbol{"store", method}
		if in, of, ok := strings.Cut(method, "."); ok {
			name = symbol{in, of}
		}
		// Else a function, for a transaction that is not ours.
		if of := (symbol{name.in, "." + name.name}); s.uses[of] != nil {
			name = of
		}
		if s.uses[name] == nil {
			tb.Errorf("there is no method %s", method)
		}
		s.follow(name, seen, found)
	}
	return found
}

// follow adds the statements that a name leads to.
func (s source) follow(name symbol, seen map[symbol]bool, found map[string]string) {
	if seen[name] {
		return
	}
	seen[name] = true
	if text, ok := s.file[name]; ok {
		found[name.String()] = text
		return
	}
	if _, ok := s.value[name]; ok {
		if text, ok := s.text(name); ok && begins.MatchString(text) {
			found[name.String()] = text
		}
		return
	}
	for _, used := range s.uses[name] {
		// What every Store has, and names that several types have: callers names those.
		if !slices.Contains([]string{".Close", "Open", ".Ping", ".run", ".flush", ".add", ".Lanes"}, used.name) {
			s.follow(used, seen, found)
		}
	}
}

// text evaluates a constant: literals, other constants, those of another package too, and sums of them.
func (s source) text(name symbol) (string, bool) {
	c := s.value[name]
	var eval func(ast.Expr) (string, bool)
	eval = func(e ast.Expr) (string, bool) {
		switch e := e.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(e.Value)
			return text, err == nil && e.Kind == token.STRING
		case *ast.Ident:
			// A constant cannot name itself, but a variable may have the name of a parameter.
			if other := (symbol{c.scope.in, e.Name}); other != name && s.value[other].value != nil {
				return s.text(other)
			}
		case *ast.SelectorExpr:
			if of, ok := e.X.(*ast.Ident); ok {
				if other := (symbol{c.scope.imports[of.Name], e.Sel.Name}); s.value[other].value != nil {
					return s.text(other)
				}
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
	return eval(c.value)
}

var (
	readOnce sync.Once
	sources  source
)

// lookUp reads the source once, for tests that look a statement up.
func lookUp(tb testing.TB, name string) symbol {
	tb.Helper()
	readOnce.Do(func() {
		sources = readSource(tb)
		// Constants of package email, which is not read.
		for name, value := range map[string]string{"TargetMailing": email.TargetMailing, "TargetRecipients": email.TargetRecipients} {
			sources.value[symbol{"", name}] = constant{value: &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(value)}}
		}
	})
	if in, of, ok := strings.Cut(name, "."); ok {
		return symbol{in, of}
	}
	return symbol{"store", name}
}

// written is the text of a statement by its name, with that of its package: "webhook.takeSQL". Those of sql stand in files.
func written(tb testing.TB, name string) string {
	tb.Helper()
	of := lookUp(tb, name)
	if text, ok := sources.file[of]; ok {
		return text
	}
	text, ok := sources.text(of)
	if !ok {
		tb.Fatalf("there is no statement %s", name)
	}
	return text
}

// writtenNumber is the value of a constant by its name.
func writtenNumber(tb testing.TB, name string) int {
	tb.Helper()
	of := lookUp(tb, name)
	literal, ok := sources.value[of].value.(*ast.BasicLit)
	if !ok {
		tb.Fatalf("there is no number %s", name)
	}
	n, err := strconv.Atoi(literal.Value)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func methodsOf(value any) []string {
	var names []string
	for method := range reflect.TypeOf(value).Methods() {
		names = append(names, method.Name)
	}
	return names
}
