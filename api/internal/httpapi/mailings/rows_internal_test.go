package mailings

import (
	"testing"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/store/mailingreport"
	"email-gateway/shared/template"
)

func TestRowReason(t *testing.T) {
	t.Parallel()
	for _, code := range []string{template.CodeType, template.CodeTooMuch, csvfile.CodeRowInQuotes} {
		if rowReason(mailingreport.Row{Code: code}) == "" {
			t.Errorf("%s has no meaning", code)
		}
	}
}
