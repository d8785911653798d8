package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module is a module whose tests fail in different ways. A flaky test fails until its file exists.
var module = map[string]string{
	"go.mod": "module example.test\n\ngo 1.26\n",
	"good/good_test.go": `package good

import "testing"

func TestGood(t *testing.T) {}
`,
	"flaky/flaky_test.go": `package flaky

import (
	"os"
	"testing"
)

func TestGood(t *testing.T) { t.Log("of no interest") }

func TestRoot(t *testing.T) {
	t.Run("good", func(t *testing.T) {})
	t.Run("flaky", func(t *testing.T) {
		if _, err := os.Stat("ran"); err != nil {
			os.WriteFile("ran", nil, 0o600)
			t.Error("the first time")
		}
	})
}
`,
	"broken/broken_test.go": `package broken

import "testing"

func TestGood(t *testing.T) {}

func TestBroken(t *testing.T) { t.Error("each time") }
`,
	"panics/panics_test.go": `package panics

import (
	"os"
	"testing"
)

func TestPanics(t *testing.T) {
	if _, err := os.Stat("ran"); err != nil {
		os.WriteFile("ran", nil, 0o600)
		panic("once")
	}
}
`,
	"races/races_test.go": `package races

import (
	"os"
	"testing"
)

func TestRaces(t *testing.T) {
	if _, err := os.Stat("ran"); err != nil {
		os.WriteFile("ran", nil, 0o600)
		t.Error("a program printed WARNING: DATA RACE")
	}
}
`,
	"unbuilt/unbuilt_test.go": `package unbuilt

func TestUnbuilt(t *testing.T) {}
`,
	"main/main_test.go": `package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	m.Run()
	os.Exit(1)
}

func TestGood(t *testing.T) {}
`,
}

func TestSuite(t *testing.T) {
	dir := t.TempDir()
	for name, text := range module {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	for _, c := range []struct {
		packages string
		passed   bool
		want     []string // lines, in this order
		never    string
	}{
		{"good", true, []string{"ok  \texample.test/good\t"}, "FAIL"},
		{
			"flaky good", true, []string{
				"TestRoot of example.test/flaky failed and runs again at the end, alone:", "  | --- FAIL: TestRoot (", "  |     --- FAIL: TestRoot/flaky (",
				"ok  \texample.test/good\t", "ok  \texample.test/flaky\t", "TestRoot of example.test/flaky failed once and passed alone: ",
			}, "of no interest",
		},
		{
			"broken good", false, []string{
				"TestBroken of example.test/broken failed and runs again", "  | --- FAIL: TestBroken (", "ok  \texample.test/good\t",
				"--- FAIL: TestBroken (", "FAIL\texample.test/broken\t", "FAIL",
			}, "passed alone",
		},
		{"panics", false, []string{"panic: once", "FAIL\texample.test/panics\t", "FAIL"}, "again"},
		{"races", false, []string{"--- FAIL: TestRaces (", "FAIL\texample.test/races\t", "FAIL"}, "again"},
		{"unbuilt good", false, []string{"FAIL\texample.test/unbuilt [build failed]", "FAIL"}, "again"},
		{"main", false, []string{"FAIL\texample.test/main\t", "FAIL"}, "again"},
		{"none", false, []string{"FAIL"}, "again"},
	} {
		t.Run(c.packages, func(t *testing.T) {
			var out strings.Builder
			packages := strings.Fields(c.packages)
			for i := range packages {
				packages[i] = "./" + packages[i]
			}
			s := &suite{flags: []string{"-count=1", "-p=1", "-run=."}, out: &out}
			passed, err := s.run(t.Context(), packages)
			if passed != c.passed || err != nil {
				t.Errorf("passed %t, %v", passed, err)
			}
			rest := "\n" + out.String()
			for _, line := range c.want {
				_, after, found := strings.Cut(rest, "\n"+line)
				if !found {
					t.Fatalf("no line %q behind the ones before in\n%s", line, out.String())
				}
				rest = after
			}
			if strings.Contains(out.String(), c.never) {
				t.Errorf("%q is in\n%s", c.never, out.String())
			}
		})
	}
}
