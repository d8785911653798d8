package htmlcheck_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
)

func TestContentIDs(t *testing.T) {
	t.Parallel()
	for html, want := range map[string][]string{
		`<p>cid:a</p>`: nil,
		`<a href="https://loja.example/?src=cid:77;cid:78">a</a><a href="https://loja.example/(cid:79)">b</a>`: nil,
		`<a href="https://loja.example" data-url="https://loja.example/open?ref=cid:4711">a</a>`:               nil,
		`<img src="https://loja.example/a.png" data-surl="cid:ii_k1" alt="cid:x" title="cid:y">`:               nil,
		`<p onclick="cid:a" x="cid:b">a</p>`:                               nil,
		`<a href=" cid:a">a</a>`:                                           {"a"},
		`<table background="cid:a"><video poster="cid:b"></video></table>`: {"a", "b"},
		`<link rel=File-List href="cid:filelist.xml@01DB"><link rel=Edit-Time-Data href="cid:editdata.mso"/>`: nil,
		`<img src="cid:logo"><img src="CID:logo"><img src="cid:a%40b">`:                                       {"logo", "a@b"},
		`<a href="a:b&amp;c"></a><img src="CiD&#58;logo">`:                                                    {"logo"},
		`<img alt="cid:x" srcset="cid:one 1x, cid:two 2x">`:                                                   {"one", "two"},
		`<style>p { background: url('cid:bg') }</style><p style="background:url(cid:c)">`:                     {"bg", "c"},
	} {
		if got := htmlcheck.ContentIDs(html); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", html, got, want)
		}
	}
}

// As many different ids as fit into a body take about as long as one id that is repeated as often.
func TestContentIDs_LinearTime(t *testing.T) {
	t.Parallel()
	fill := func(id func(i int) string) string {
		var b strings.Builder
		b.WriteString(`<img srcset="`)
		for i := 0; b.Len() < email.MaxHTML-32; i++ {
			b.WriteString("cid:" + id(i) + ",")
		}
		return b.String() + `">`
	}
	took := func(html string) time.Duration {
		best := time.Hour
		for range 3 {
			start := time.Now()
			htmlcheck.ContentIDs(html)
			best = min(best, time.Since(start))
		}
		return best
	}
	one := took(fill(func(int) string { return "00000" }))
	if d := took(fill(func(i int) string { return fmt.Sprintf("%05d", i) })); d > 10*one+time.Second {
		t.Errorf("different ids take %v, one id %v", d, one)
	}
}
