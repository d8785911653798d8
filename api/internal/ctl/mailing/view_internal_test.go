package mailing

import (
	"strings"
	"testing"

	mailingstore "email-gateway/shared/store/mailing"
)

// The suggested list is not empty.
func TestNext_StatusOfTheRows(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]mailingView{
		"--status FAILED": {Failed: 1, Expired: 1}, "--status EXPIRED": {Expired: 1},
	} {
		v.Status = mailingstore.Completed
		if got := v.next(); !strings.HasSuffix(got, want) {
			t.Errorf("%q does not end with %q", got, want)
		}
	}
}
