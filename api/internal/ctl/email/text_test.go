package email

import (
	"strings"

	"email-gateway/api/internal/ctl/output"
)

// textOf returns the text output.
func textOf(v output.Result) string {
	var page strings.Builder
	v.WriteText(&page)
	return page.String()
}
