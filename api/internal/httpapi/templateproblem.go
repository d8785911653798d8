package httpapi

import (
	"fmt"
	"net/http"

	stored "email-gateway/shared/store/template"
)

// Problems of requests about templates.
var (
	noSuchTemplate = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such template, locale or version"}
	templatesFull  = problem{status: http.StatusConflict, code: "TEMPLATE_LIMIT", detail: fmt.Sprintf("the company has %d versions of templates, %d bytes of them, or %d names, with those of deleted ones: delete versions, or use names again", stored.MaxVersions, stored.MaxBytes, stored.MaxNames)}
)
