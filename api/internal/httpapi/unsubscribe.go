package httpapi

import (
	"bytes"
	"errors"
	"html/template"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/unsubscribe"
)

// What an unsubscribe link may lead to. Whoever comes here reads mail from a Brazilian
// company, and may not read Portuguese.
const (
	unsubscribeAsk     = "ask"
	unsubscribeDone    = "done"
	unsubscribeInvalid = "invalid"
	unsubscribeLater   = "later"
)

// unsubscribePage names no address: the link may have been forwarded.
var unsubscribePage = template.Must(template.New("unsubscribe").Parse(`<!DOCTYPE html>
<html lang="pt-BR">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Cancelar inscrição · Unsubscribe</title>
</head>
<body>
<main>
{{- if eq . "ask"}}
<h1>Não quer mais receber estes emails?</h1>
<p lang="en">Do you want to stop receiving these emails?</p>
<form method="post"><button name="List-Unsubscribe" value="One-Click">Cancelar inscrição · Unsubscribe</button></form>
{{- else if eq . "done"}}
<h1>Pronto: você não receberá mais estes emails.</h1>
<p lang="en">Done: you will not receive these emails any more.</p>
{{- else if eq . "later"}}
<h1>Não foi possível agora. Tente de novo em instantes.</h1>
<p lang="en">This did not work just now. Please try again in a moment.</p>
{{- else}}
<h1>Este link não é válido.</h1>
<p lang="en">This link is not valid.</p>
{{- end}}
</main>
</body>
</html>
`))

// askToUnsubscribe shows the page behind the link. It changes nothing: scanners and
// previews follow links as well.
func (a *API) askToUnsubscribe(c *gin.Context) error {
	if _, err := a.unsubscribeKeys.Open(c.Param("token")); err != nil {
		return answerUnsubscribe(c, http.StatusNotFound, unsubscribeInvalid)
	}
	return answerUnsubscribe(c, http.StatusOK, unsubscribeAsk)
}

// unsubscribe is the one click of RFC 8058. The token is all that is asked for: mail
// programs have neither cookies nor a key. The body says nothing that counts.
func (a *API) unsubscribe(c *gin.Context) error {
	link, err := a.unsubscribeKeys.Open(c.Param("token"))
	if errors.Is(err, unsubscribe.ErrInvalid) {
		return answerUnsubscribe(c, http.StatusNotFound, unsubscribeInvalid)
	}
	if err != nil {
		return err
	}
	s := store.Suppression{Address: link.Address, Reason: store.Unsubscribed, MailingID: &link.Mailing}
	switch err := a.store.Suppress(c.Request.Context(), link.Company, s); {
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknownOutcome):
		a.log.Log(c.Request.Context(), levelOf(c.Request.Context(), err), "cannot unsubscribe", "error", email.MaskText(err.Error()))
		c.Header("Retry-After", strconv.Itoa(seconds(problemOf(err).retryAfter)))
		return answerUnsubscribe(c, http.StatusServiceUnavailable, unsubscribeLater)
	case err != nil:
		return err
	}
	return answerUnsubscribe(c, http.StatusOK, unsubscribeDone)
}

// answerUnsubscribe shows a page that nobody keeps, frames or learns the link from.
func answerUnsubscribe(c *gin.Context, status int, what string) error {
	var page bytes.Buffer
	if err := unsubscribePage.Execute(&page, what); err != nil {
		return err
	}
	c.Header("Cache-Control", "no-store")
	c.Header("Referrer-Policy", "no-referrer")
	c.Header("X-Robots-Tag", "noindex")
	c.Header("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	c.Data(status, "text/html; charset=utf-8", page.Bytes())
	return nil
}
