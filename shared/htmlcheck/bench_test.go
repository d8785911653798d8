package htmlcheck_test

import (
	"strings"
	"testing"

	"email-gateway/shared/htmlcheck"
)

// BenchmarkCheck measures the check of an accepted email: "order" is a typical transactional
// email of 2 KB, "noscript" requires three parses, and "thorough" does all of them.
func BenchmarkCheck(b *testing.B) {
	order := files(b, "accepted")["order-confirmation"]
	newsletter := strings.Replace(order, "<p>Ol", strings.Repeat("<p style=\"margin: 0\">Ol&aacute; <b>Maria</b></p>\n", 1000)+"<p>Ol", 1)
	for _, bb := range []struct {
		name  string
		html  string
		check func(string) error
	}{
		{"order", order, htmlcheck.Check},
		{"order noscript", order + "<noscript><p>Oi</p></noscript>", htmlcheck.Check},
		{"order thorough", order, htmlcheck.CheckThoroughly},
		{"newsletter 50 KB", newsletter, htmlcheck.Check},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.html)))
			b.ReportAllocs()
			for b.Loop() {
				if err := bb.check(bb.html); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
