package httpapi_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/unsubscribe"
)

// unsubscribePath creates a mailing of Café & Cia and returns the path of a recipient's link.
func unsubscribePath(t *testing.T, g *gateway, address string) string {
	t.Helper()
	id := g.mail(t, given(part{name: "from", value: "Café & Cia <billing@acme.example>"}))
	return "/u/" + unsubscribeKeys(t).Seal(unsubscribe.Link{Company: g.Company, Mailing: uuid.MustParse(id), Address: address})
}

// The page shows the sender and the masked address in the reader's language, in plain HTML, and its policy
// allows only its own style.
func TestUnsubscribe_Page(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	path := unsubscribePath(t, g, "ana@example.com")
	for languages, want := range map[string][]string{
		"":                       {`lang="pt-BR"`, "<strong>Café &amp; Cia</strong> não enviará", "<strong>a***@e***.com</strong>", "Cancelar inscrição</button>"},
		"pt-BR,pt;q=0.9,en;q=.8": {`lang="pt-BR"`, "Cancelar inscrição</button>"},
		"fr,en;q=0.7,pt;q=0.3":   {`lang="en"`, "<strong>Café &amp; Cia</strong> will not send", "<strong>a***@e***.com</strong>", "Unsubscribe</button>"},
	} {
		page := g.do(t, call{Path: path, NoKey: true, Header: map[string]string{"Accept-Language": languages}})
		for _, text := range append(want, `<form method="post">`) {
			if !strings.Contains(page.Body, text) {
				t.Errorf("%q: no %s in %s", languages, text, page.Body)
			}
		}
		policy := page.Header.Get("Content-Security-Policy")
		if page.Status != http.StatusOK || strings.Contains(page.Body, "<script") || strings.Contains(page.Body, "ana@") || strings.Contains(policy, "unsafe") ||
			!strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || page.Header.Get("X-Content-Type-Options") != "nosniff" || page.Header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%q: %d %v", languages, page.Status, page.Header)
		}
		if plain := regexp.MustCompile(`(?s)<style>.*</style>`).ReplaceAllString(page.Body, ""); strings.Contains(plain, "style=") {
			t.Error("the page has a style attribute, which its Content-Security-Policy forbids")
		}
	}
	// If the mailing does not exist, the name is left out.
	token := unsubscribeKeys(t).Seal(unsubscribe.Link{Company: g.Company, Mailing: uuid.New(), Address: "ana@example.com"})
	if page := g.do(t, call{Path: "/u/" + token, NoKey: true}); page.Status != http.StatusOK || !strings.Contains(page.Body, "O remetente não enviará") {
		t.Errorf("%d %s", page.Status, page.Body)
	}
}

// In a browser without JavaScript the style applies, and a click on the button unsubscribes, with and without
// the style.
func TestUnsubscribe_InABrowser(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for languages, texts := range map[string][]string{
		"pt-BR,pt;q=0.9,en;q=0.5": {"pt-BR", "Não quer mais receber estes emails?", "Pronto: inscrição cancelada."},
		"en-US,en;q=0.9":          {"en", "Do you want to stop receiving these emails?", "Done: you are unsubscribed."},
	} {
		address := texts[0] + "@example.com"
		form := given(part{name: "from", value: "Café & Cia <billing@acme.example>"}, part{name: "name", value: texts[0]})
		id := uuid.MustParse(g.mail(t, form))
		b := openBrowser(t, languages)
		b.open(t, g.URL+"/u/"+unsubscribeKeys(t).Seal(unsubscribe.Link{Company: g.Company, Mailing: id, Address: address}))
		for expression, want := range map[string]any{
			"document.documentElement.lang":                                        texts[0],
			"document.querySelector('h1').innerText":                               texts[1],
			"document.querySelector('strong').innerText":                           "Café & Cia",
			"getComputedStyle(document.querySelector('button')).backgroundColor":   "rgb(185, 28, 28)",
			"document.documentElement.scrollWidth <= document.body.clientWidth":    true,
			"document.body.innerText.includes('" + address + "')":                  false,
			"document.querySelector('button').getBoundingClientRect().height > 40": true,
		} {
			if got := b.eval(t, expression); got != want {
				t.Errorf("%s: %s is %v, want %v", languages, expression, got, want)
			}
		}
		if got, _ := g.suppressed(t, "?address="+address); len(got) != 0 {
			t.Errorf("showing the page has suppressed %v", got)
		}
		if texts[0] == "en" { // the page also works without its style sheet
			b.eval(t, "document.querySelectorAll('style').forEach(s => s.remove())")
			for _, shown := range []string{"h1", "strong", "button"} {
				if b.eval(t, "document.querySelector('"+shown+"').getBoundingClientRect().height > 10") != true {
					t.Errorf("without its style the page shows no %s", shown)
				}
			}
			if got := b.eval(t, "getComputedStyle(document.querySelector('button')).backgroundColor"); got == "rgb(185, 28, 28)" {
				t.Errorf("the button still has its style: %v", got)
			}
		}
		b.click(t)
		if got := b.eval(t, "document.querySelector('h1').innerText"); got != texts[2] {
			t.Errorf("after the click: %v, want %s", got, texts[2])
		}
		if got, _ := g.suppressed(t, "?address="+address); len(got) != 1 {
			t.Errorf("after the click %v are suppressed", got)
		}
	}
}
