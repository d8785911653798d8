package unsubscribepage

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"golang.org/x/text/language"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/response"
)

// Path is the route of unsubscribe links, prefix its prefix.
const (
	prefix = "/u/"
	Path   = prefix + ":token"
)

// Pages of an unsubscribe link.
const (
	pageAsk     = "ask"
	pageDone    = "done"
	pageInvalid = "invalid"
	pageLater   = "later"
	pageFailed  = "failed"
)

// style is the page's CSS. The Content-Security-Policy allows only its hash.
const style = `:root{color-scheme:light dark}
body{margin:0;background:#f3f4f6;color:#111827;font:1rem/1.5 system-ui,sans-serif}
main{box-sizing:border-box;max-width:32rem;margin:12vh auto 2rem;padding:2rem;background:#fff;border-radius:.75rem;box-shadow:0 1px 4px rgba(0,0,0,.2)}
h1{margin:0 0 1rem;font-size:1.4rem;line-height:1.3}
p{margin:0 0 1rem;overflow-wrap:anywhere}
button{padding:.75rem 1.5rem;border:0;border-radius:.5rem;background:#b91c1c;color:#fff;font:inherit;font-weight:600;cursor:pointer}
button:focus-visible{outline:3px solid #2563eb;outline-offset:2px}
@media (prefers-color-scheme:dark){body{background:#111827;color:#f3f4f6}main{background:#1f2937}}`

// policy allows the page's style and sending its form, nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

// pageView holds the values of the page. Sender and Address are "" if unknown.
type pageView struct {
	What    string
	Lang    string
	Sender  string // as shown in From
	Address string // masked: the link may have been forwarded
}

// pageTemplate is plain HTML with a form; it works without CSS and JavaScript.
var pageTemplate = template.Must(template.New("unsubscribe").Parse(`<!DOCTYPE html>
<html lang="{{.Lang}}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{{if eq .Lang "en"}}Unsubscribe{{else}}Cancelar inscrição{{end}}</title>
<style>` + style + `</style>
</head>
<body>
<main>
{{- if eq .Lang "en"}}{{template "en" .}}{{else}}{{template "pt-BR" .}}{{end}}
</main>
</body>
</html>
{{define "pt-BR"}}
{{- if eq .What "ask"}}
<h1>Não quer mais receber estes emails?</h1>
<p>{{if .Sender}}<strong>{{.Sender}}</strong> não enviará{{else}}O remetente não enviará{{end}} mais emails como este para <strong>{{.Address}}</strong>.</p>
<form method="post"><button name="List-Unsubscribe" value="One-Click">Cancelar inscrição</button></form>
{{- else if eq .What "done"}}
<h1>Pronto: inscrição cancelada.</h1>
<p>{{if .Sender}}<strong>{{.Sender}}</strong> não enviará{{else}}O remetente não enviará{{end}} mais emails como aquele para <strong>{{.Address}}</strong>. Esta página pode ser fechada.</p>
{{- else if eq .What "later"}}
<h1>Não foi possível agora. Tente de novo em instantes.</h1>
<p>Recarregue esta página ou abra o link do email outra vez.</p>
{{- else if eq .What "failed"}}
<h1>Não foi possível cancelar a inscrição.</h1>
<p>Nada foi alterado. Abra o link do email outra vez ou responda ao email e peça para sair da lista.</p>
{{- else}}
<h1>Este link não é válido.</h1>
<p>Abra o link do email outra vez, por inteiro, ou responda ao email e peça para sair da lista.</p>
{{- end}}{{end}}
{{define "en"}}
{{- if eq .What "ask"}}
<h1>Do you want to stop receiving these emails?</h1>
<p>{{if .Sender}}<strong>{{.Sender}}</strong>{{else}}The sender{{end}} will not send emails like this one to <strong>{{.Address}}</strong> any more.</p>
<form method="post"><button name="List-Unsubscribe" value="One-Click">Unsubscribe</button></form>
{{- else if eq .What "done"}}
<h1>Done: you are unsubscribed.</h1>
<p>{{if .Sender}}<strong>{{.Sender}}</strong>{{else}}The sender{{end}} will not send emails like that one to <strong>{{.Address}}</strong> any more. You can close this page.</p>
{{- else if eq .What "later"}}
<h1>This did not work just now. Please try again in a moment.</h1>
<p>Reload this page, or open the link in the email again.</p>
{{- else if eq .What "failed"}}
<h1>You could not be unsubscribed.</h1>
<p>Nothing has changed. Open the link in the email again, or reply to the email and ask to be taken off the list.</p>
{{- else}}
<h1>This link is not valid.</h1>
<p>Open the whole link in the email again, or reply to the email and ask to be taken off the list.</p>
{{- end}}{{end}}`))

// languages begins with the default: the companies are Brazilian.
var (
	languages = []string{"pt-BR", "en"}
	matcher   = language.NewMatcher([]language.Tag{language.BrazilianPortuguese, language.English})
)

// longestAcceptLanguage is longer than what browsers send (bytes).
const longestAcceptLanguage = 1000

// languageOf chooses one of the two languages by Accept-Language.
func languageOf(header string) string {
	if len(header) > longestAcceptLanguage {
		header = ""
	}
	tags, _, err := language.ParseAcceptLanguage(header)
	if err != nil {
		tags = nil
	}
	_, i, _ := matcher.Match(tags...)
	return languages[i]
}

// IsPath reports whether the path is that of an unsubscribe link, valid or not.
func IsPath(c *gin.Context) bool {
	return strings.HasPrefix(c.Request.URL.Path, prefix)
}

// ShowProblem responds with a page, since people open the links in a browser. It
// returns false if the client asks for JSON.
func ShowProblem(c *gin.Context, p problem.Problem) bool {
	if response.Negotiate(c, gin.MIMEHTML, problem.MediaType, gin.MIMEJSON) != gin.MIMEHTML {
		return false
	}
	view := pageView{What: pageFailed}
	switch {
	case p.Status == http.StatusNotFound:
		view.What = pageInvalid
	case p.RetryAfter > 0:
		view.What = pageLater
	}
	return answer(c, p.Status, view) == nil
}

// answer sends a page that is not cached, framed or passed on as referrer.
func answer(c *gin.Context, status int, v pageView) error {
	v.Lang = languageOf(c.GetHeader("Accept-Language"))
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, v); err != nil {
		return err
	}
	c.Header("Cache-Control", "no-store")
	c.Header("Content-Language", v.Lang)
	c.Header("Vary", "Accept, Accept-Language")
	c.Header("Referrer-Policy", "no-referrer")
	c.Header("X-Content-Type-Options", "nosniff")
	c.Header("X-Frame-Options", "DENY")
	c.Header("X-Robots-Tag", "noindex")
	c.Header("Content-Security-Policy", policy)
	c.Data(status, "text/html; charset=utf-8", page.Bytes())
	return nil
}
