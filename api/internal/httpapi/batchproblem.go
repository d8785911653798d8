package httpapi

import (
	"fmt"
	"net/http"
)

var batchTooLarge = problem{
	status: http.StatusRequestEntityTooLarge, code: "BODY_TOO_LARGE",
	detail: fmt.Sprintf("the body is larger than %d bytes: send several batches", maxBatchBody),
}

var batchContentTooLarge = problem{
	status: http.StatusRequestEntityTooLarge, code: "BODY_TOO_LARGE",
	detail: fmt.Sprintf("the emails made from templates have more than %d bytes of html and text together: send several batches", maxBatchBody),
}
