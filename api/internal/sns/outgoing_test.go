package sns_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// No other code of the api requests URLs from outside, so urls.go determines everything that an outsider can make
// it fetch. The storage's address is a setting, and package client belongs to gatewayctl.
func TestOutgoing_OnlyThisPackage(t *testing.T) {
	t.Parallel()
	asking := map[string]bool{
		"Get": true, "Head": true, "Post": true, "PostForm": true, "Client": true, "DefaultClient": true, "Transport": true, "DefaultTransport": true,
		"NewRequest": true, "NewRequestWithContext": true,
	}
	files, here := 0, 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		files++
		in := filepath.Base(filepath.Dir(path))
		for _, imported := range file.Imports {
			if imported.Path.Value == `"email-gateway/api/internal/client"` && !strings.HasPrefix(path, filepath.FromSlash("../../internal/ctl/")) {
				t.Errorf("%s uses the client", path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if of, ok := selector.X.(*ast.Ident); !ok || of.Name != "http" || !asking[selector.Sel.Name] {
				return true
			}
			switch in {
			case "sns":
				here++
			case "client":
			default:
				t.Errorf("%s uses http.%s", path, selector.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil || files < 50 || here == 0 {
		t.Errorf("%d files, %d uses in this package: %v", files, here, err)
	}
}
