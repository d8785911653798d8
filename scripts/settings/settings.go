// Package settings generates CONFIGURATION.md's table from the source of the structs into which the
// programs read their environment: a setting's name and default are in its tag, its description is
// in its comment.
package settings

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// Setting is one variable of one program.
type Setting struct {
	Name     string
	Default  string // "" = none
	Required bool
	Meaning  string // sentences; they refer to other settings by name
}

// Program is a program that reads its environment into a struct.
type Program struct {
	Name     string
	Settings []Setting // in the order of the source
}

// programs are the deployed programs with their structs.
var programs = []struct{ name, dir, root string }{
	{"api", "api/internal/config", "Config"},
	{"dispatcher", "worker/internal/config", "Dispatcher"},
	{"worker", "worker/internal/config", "Worker"},
}

// Programs reads the source below root, the folder of the checkout.
func Programs(root string) ([]Program, error) {
	all := make([]Program, 0, len(programs))
	for _, p := range programs {
		r := reader{root: root, parsed: map[string]folder{}}
		if err := r.structure(p.dir, p.root); err != nil {
			return nil, fmt.Errorf("read the settings of %s: %w", p.name, err)
		}
		made := Program{Name: p.name}
		for _, f := range r.fields {
			meaning, err := meaningOf(f, r.fields)
			if err != nil {
				return nil, fmt.Errorf("read the settings of %s: %w", p.name, err)
			}
			made.Settings = append(made.Settings, Setting{Name: f.variable, Default: f.fallback, Required: f.required, Meaning: meaning})
		}
		all = append(all, made)
	}
	return all, nil
}

// field is a struct field with a tag for the environment.
type field struct {
	name, variable, fallback, comment string
	required                          bool
}

// folder are a package's types by name, each with the imports of its file.
type folder map[string]declaration

type declaration struct {
	fields  *ast.FieldList
	imports map[string]string // last element of the path → folder below root
}

type reader struct {
	root   string
	parsed map[string]folder
	fields []field
}

// structure appends the fields of a struct, and of the structs that it embeds.
func (r *reader) structure(dir, name string) error {
	types, err := r.parse(dir)
	if err != nil {
		return err
	}
	found, ok := types[name]
	if !ok {
		return fmt.Errorf("%s has no struct %s", dir, name)
	}
	for _, f := range found.fields.List {
		if len(f.Names) == 0 {
			err = r.embedded(dir, f.Type, found.imports)
		} else {
			err = r.named(dir, name, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) embedded(dir string, kind ast.Expr, imports map[string]string) error {
	switch t := kind.(type) {
	case *ast.Ident:
		return r.structure(dir, t.Name)
	case *ast.SelectorExpr:
		if from, ok := t.X.(*ast.Ident); ok && imports[from.Name] != "" {
			return r.structure(imports[from.Name], t.Sel.Name)
		}
	}
	return fmt.Errorf("%s embeds a type that is no struct of this project", dir)
}

func (r *reader) named(dir, structure string, f *ast.Field) error {
	if f.Tag == nil {
		return nil
	}
	quoted, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return fmt.Errorf("%s: tag of %s.%s: %w", dir, structure, f.Names[0].Name, err)
	}
	tag := reflect.StructTag(quoted)
	variable, options, _ := strings.Cut(tag.Get("env"), ",")
	if variable == "" {
		return nil
	}
	r.fields = append(r.fields, field{
		name: f.Names[0].Name, variable: variable, fallback: tag.Get("envDefault"),
		required: strings.Contains(options, "required"), comment: strings.Join(strings.Fields(f.Doc.Text()), " "),
	})
	return nil
}

func (r *reader) parse(dir string) (folder, error) {
	if made, ok := r.parsed[dir]; ok {
		return made, nil
	}
	files, err := filepath.Glob(filepath.Join(r.root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	made := folder{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		made.add(file)
	}
	r.parsed[dir] = made
	return made, nil
}

func (d folder) add(file *ast.File) {
	imports := map[string]string{}
	for _, i := range file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		if below, ours := strings.CutPrefix(path, "email-gateway/"); ours {
			imports[filepath.Base(path)] = below
		}
	}
	for _, declared := range file.Decls {
		group, ok := declared.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range group.Specs {
			named, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			if structure, ok := named.Type.(*ast.StructType); ok {
				d[named.Name.Name] = declaration{fields: structure.Fields, imports: imports}
			}
		}
	}
}
