package person

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// After an error of the export or of the file there is no file. An existing file is kept, and the export does not begin.
func TestWriteOwn_Fails(t *testing.T) {
	t.Parallel()
	failed := errors.New("database unavailable")
	for name, produce := range map[string]func() (any, error){
		"export": func() (any, error) { return nil, failed },
		"write":  func() (any, error) { return unencodable{failed}, nil },
	} {
		path := filepath.Join(t.TempDir(), "maria.json")
		if err := writeOwn(path, produce); !errors.Is(err, failed) {
			t.Errorf("%s: %v, want %v", name, err, failed)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file remains (%v)", name, err)
		}
	}
	existing := filepath.Join(t.TempDir(), "maria.json")
	if err := os.WriteFile(existing, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{existing, filepath.Join(t.TempDir(), "missing", "maria.json")} {
		err := writeOwn(path, func() (any, error) {
			t.Errorf("%s: the export has begun", path)
			return nil, nil
		})
		if err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	if text, err := os.ReadFile(existing); string(text) != "kept" {
		t.Errorf("the existing file has %q (%v)", text, err)
	}
}

// unencodable is a value that cannot be written as JSON.
type unencodable struct{ err error }

func (u unencodable) MarshalJSON() ([]byte, error) { return nil, u.err }
