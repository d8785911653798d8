// Package disposable knows the domains of throw-away mailboxes (mailinator.com and
// its like), which read their mail for minutes and never again. The CSV intake makes
// entries with such addresses INVALID.
//
// list.txt is disposable_email_blocklist.conf of the project
// github.com/disposable-email-domains/disposable-email-domains, as it is: one domain
// per line, in the public domain (CC0 1.0). To refresh it, in this folder:
//
//	curl -fo list.txt https://raw.githubusercontent.com/disposable-email-domains/disposable-email-domains/main/disposable_email_blocklist.conf
//
// and run the package's tests, which hold it to what Domain expects of it.
package disposable

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed list.txt
var list string

// domains is built by the first question: programs that never ask do not pay for it
// (about 1 ms and 500 KiB). Its keys are pieces of list.
var domains = sync.OnceValue(func() map[string]struct{} {
	set := make(map[string]struct{}, strings.Count(list, "\n"))
	for line := range strings.Lines(list) {
		set[strings.TrimSpace(line)] = struct{}{}
	}
	return set
})

// Domain tells whether a domain, or one that it is a part of, is on the list:
// mailinator.com and any.sub.mailinator.com are, xmailinator.com is not. The domain
// is in its ASCII form, in any case; a dot at its end does not matter.
func Domain(domain string) bool {
	known := domains()
	rest := strings.ToLower(strings.TrimSuffix(domain, "."))
	for strings.Contains(rest, ".") { // a top-level domain is nobody's mailbox
		if _, found := known[rest]; found {
			return true
		}
		_, rest, _ = strings.Cut(rest, ".")
	}
	return false
}
