package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/tenant"
)

// The files of a template in one locale.
const (
	variablesFile = "template.json"
	subjectFile   = "subject.txt"
	htmlFile      = "body.html"
	textFile      = "body.txt"
)

// defaultLocale is the folder of the template without a locale.
const defaultLocale = "default"

// LocaleFolder returns the name of the folder that holds a locale's template.
func LocaleFolder(locale string) string {
	if locale == "" {
		return defaultLocale
	}
	return locale
}

// templateFile is template.json.
type templateFile struct {
	Variables json.RawMessage `json:"variables"`
}

// readTemplates reads the templates of a directory, by name and locale.
func readTemplates(dir string) ([]templateView, error) {
	subjects, err := filepath.Glob(filepath.Join(dir, "*", "*", subjectFile))
	if err != nil {
		return nil, fmt.Errorf("read templates: %w", err)
	}
	if len(subjects) == 0 {
		return nil, command.Usagef("%s has no template: a template is NAME/LOCALE/%s with its bodies beside it", dir, subjectFile)
	}
	var all []templateView
	for _, subject := range subjects {
		folder := filepath.Dir(subject)
		v := templateView{Name: filepath.Base(filepath.Dir(folder)), Locale: filepath.Base(folder), Variables: json.RawMessage("[]")}
		if v.Locale == defaultLocale {
			v.Locale = ""
		}
		for name, into := range map[string]*string{subjectFile: &v.Subject, htmlFile: &v.HTML, textFile: &v.Text} {
			text, err := readFile(filepath.Join(folder, name))
			if err != nil {
				return nil, err
			}
			*into = string(text)
		}
		v.Subject = strings.TrimRight(v.Subject, "\r\n")
		text, err := readFile(filepath.Join(folder, variablesFile))
		if err != nil {
			return nil, err
		}
		if text != nil {
			var file templateFile
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&file); err != nil {
				return nil, command.Usagef("%s: %v", filepath.Join(folder, variablesFile), err)
			}
			if len(file.Variables) > 0 {
				v.Variables = file.Variables
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// readFile returns the text of a file, nil if it does not exist.
func readFile(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read template: %w", err)
	}
	text, err := tenant.Text(content)
	if err != nil {
		return nil, command.Usagef("%s %v", path, err)
	}
	return text, nil
}

// writeTemplate writes the files of a version. Its name and locale are those of the api, which holds them to patterns
// without separators; others are refused.
func writeTemplate(dir string, v templateView) error {
	folder := filepath.Join(dir, v.Name, LocaleFolder(v.Locale))
	if v.Name == "" || !filepath.IsLocal(v.Name) || filepath.Base(v.Name) != v.Name || filepath.Base(LocaleFolder(v.Locale)) != LocaleFolder(v.Locale) {
		return fmt.Errorf("the api named a template %q with the locale %q", v.Name, v.Locale)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write template: %w", err)
	}
	variables, err := json.MarshalIndent(templateFile{v.Variables}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode variables: %w", err)
	}
	for name, text := range map[string]string{subjectFile: v.Subject + "\n", htmlFile: v.HTML, textFile: v.Text, variablesFile: string(variables) + "\n"} {
		path := filepath.Join(folder, name)
		if text == "" {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("write template: %w", err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write template: %w", err)
		}
	}
	return nil
}

// diffTemplates lists the lines that differ, by file. Nothing means that the templates are equal.
func diffTemplates(old, v templateView) (diff []string) {
	for _, file := range []struct{ name, before, after string }{
		{subjectFile, old.Subject, v.Subject},
		{htmlFile, old.HTML, v.HTML},
		{textFile, old.Text, v.Text},
		{variablesFile, indented(old.Variables), indented(v.Variables)},
	} {
		if lines := diffLines(file.before, file.after); len(lines) > 0 {
			diff = append(append(diff, file.name), lines...)
		}
	}
	return diff
}

// indented is JSON in the form in which it is compared.
func indented(raw json.RawMessage) string {
	var value any
	if json.Unmarshal(raw, &value) != nil || value == nil {
		return "[]"
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return string(raw)
	}
	return string(text)
}

// diffLines lists what is between the lines that both texts begin and end with.
func diffLines(before, after string) (diff []string) {
	if before == after {
		return nil
	}
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	for _, line := range a {
		if line != "" || before != "" {
			diff = append(diff, "- "+line)
		}
	}
	for _, line := range b {
		diff = append(diff, "+ "+line)
	}
	return diff
}
