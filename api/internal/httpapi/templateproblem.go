package httpapi

import (
	"fmt"
	"net/http"

	stored "email-gateway/shared/store/template"
)

// Problems of requests about templates.
var (
	noSuchTemplate = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such template, locale or version"}
	templatesFull  = problem{status: http.StatusConflict, code: "TEMPLATE_LIMIT", detail: fmt.Sprintf("the company has %d versions of templates or %d bytes of them: delete some", stored.MaxVersions, stored.MaxBytes)}
)
