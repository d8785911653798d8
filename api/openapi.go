// Package api contains the OpenAPI document of the HTTP API. The api's main function serves it, and
// the tests of internal/httpapi check every response against it.
package api

import _ "embed" // for the document below

//go:embed openapi.yaml
var openAPI string

// OpenAPI returns the text of openapi.yaml.
func OpenAPI() string { return openAPI }
