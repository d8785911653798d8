// Package disposable lists the domains of disposable mailboxes (such as mailinator.com). The
// ingestion of mailings makes entries with such addresses INVALID.
//
// list.txt is disposable_email_blocklist.conf of the project
// github.com/disposable-email-domains/disposable-email-domains, unmodified: one domain
// per line, in the public domain (CC0 1.0). To refresh it, in this folder:
//
//	curl -fo list.txt https://raw.githubusercontent.com/disposable-email-domains/disposable-email-domains/main/disposable_email_blocklist.conf
//
// and run the package's tests, which check the assumptions of Domain.
package disposable

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed list.txt
var list string

// domains is built on first use: programs that never call Domain save about 1 ms and 500 KiB.
// Its keys are substrings of list.
var domains = sync.OnceValue(func() map[string]struct{} {
	set := make(map[string]struct{}, strings.Count(list, "\n"))
	for line := range strings.Lines(list) {
		set[strings.TrimSpace(line)] = struct{}{}
	}
	return set
})

// Domain reports whether a domain or one of its parent domains is on the list: mailinator.com
// and any.sub.mailinator.com are, xmailinator.com is not. The domain must be ASCII; case and a
// trailing dot do not matter.
func Domain(domain string) bool {
	known := domains()
	rest := strings.ToLower(strings.TrimSuffix(domain, "."))
	for strings.Contains(rest, ".") { // top-level domains are not on the list
		if _, found := known[rest]; found {
			return true
		}
		_, rest, _ = strings.Cut(rest, ".")
	}
	return false
}
