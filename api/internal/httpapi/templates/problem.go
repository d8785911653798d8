package templates

import (
	"fmt"
	"net/http"

	"email-gateway/api/internal/httpapi/problem"
	templatestore "email-gateway/shared/store/template"
)

// Problems of requests about templates.
var (
	noSuchTemplate = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "there is no such template, locale or version"}
	templatesFull  = problem.Problem{Status: http.StatusConflict, Code: "TEMPLATE_LIMIT", Detail: fmt.Sprintf("the company has %d template versions, %d bytes of them, or %d names (those of deleted templates count), which is the maximum: delete versions, or reuse names", templatestore.MaxVersions, templatestore.MaxBytes, templatestore.MaxNames)}
)
