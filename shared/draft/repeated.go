package draft

import (
	"strings"

	"email-gateway/shared/mailbox"
)

// comparedCopies is the maximum number of different addresses of one email that are converted to the IDNA form for
// comparison. A long address takes a millisecond, and a body has room for thousands of addresses. An email may have ten
// copies.
const comparedCopies = 100

// dropRepeated replaces by "" each address of cc and bcc that occurs earlier in to, cc or bcc, in this order. It
// ignores letter case and the form of an international domain. It runs before the rules, so that a repeated address
// does not count toward a list's limit. SQL's email_gateway_present compares without the IDNA form, so it counts an
// address in both forms twice.
func (e *Email) dropRepeated() {
	forms, seen := map[string]string{}, map[string]bool{}
	again := func(address string) bool {
		text := strings.ToLower(address)
		form, known := forms[text]
		if !known {
			form = text
			if len(forms) < comparedCopies {
				if ascii, err := mailbox.ASCII(address); err == nil {
					form = strings.ToLower(ascii)
				}
			}
			forms[text] = form
		}
		before := seen[form]
		seen[form] = true
		return before
	}
	again(e.To)
	for _, list := range [][]string{e.CC, e.BCC} {
		for i, address := range list {
			if again(address) {
				list[i] = ""
			}
		}
	}
}

// tooManyAddresses reports whether a list has too many addresses to compare.
func tooManyAddresses(list []string) bool {
	n := 0
	for _, address := range list {
		if address != "" {
			n++
		}
	}
	return n > comparedCopies
}
