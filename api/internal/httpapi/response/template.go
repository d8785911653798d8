package response

import (
	"email-gateway/api/internal/templates"
)

// TemplateOf describes the version that a stored reference names.
func TemplateOf(ref string) *Template {
	name, locale, version := templates.ParseRef(ref)
	return &Template{Name: name, Locale: locale, Version: version}
}

// Template is the version of a stored template that an email was made from.
type Template struct {
	Name    string `json:"name"`
	Locale  string `json:"locale,omitempty"`
	Version int    `json:"version"`
}
