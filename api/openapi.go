// Package api holds the contract of the HTTP interface. The api's main function
// serves it, and the tests of internal/httpapi hold every answer to it.
package api

import _ "embed" // for the document below

//go:embed openapi.yaml
var openAPI string

// OpenAPI is the text of openapi.yaml.
func OpenAPI() string { return openAPI }
