package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/mail"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/unsubscribe"
)

// askToUnsubscribe shows the page behind the link. It changes nothing: scanners and
// previews follow links as well.
func (a *API) askToUnsubscribe(c *gin.Context) error {
	link, err := a.unsubscribeKeys.Open(c.Param("token"))
	if err != nil {
		return answerUnsubscribe(c, http.StatusNotFound, unsubscribeView{What: unsubscribeInvalid})
	}
	return answerUnsubscribe(c, http.StatusOK, a.viewOf(c, unsubscribeAsk, link))
}

// unsubscribe is the one click of RFC 8058. The token is all that is asked for: mail
// programs have neither cookies nor a key. The body says nothing that counts.
func (a *API) unsubscribe(c *gin.Context) error {
	link, err := a.unsubscribeKeys.Open(c.Param("token"))
	if errors.Is(err, unsubscribe.ErrInvalid) {
		return answerUnsubscribe(c, http.StatusNotFound, unsubscribeView{What: unsubscribeInvalid})
	}
	if err != nil {
		return err
	}
	s := store.Suppression{Address: link.Address, Reason: store.Unsubscribed, MailingID: &link.Mailing}
	if err := a.store.Suppress(c.Request.Context(), link.Company, s); err != nil {
		return err
	}
	return answerUnsubscribe(c, http.StatusOK, a.viewOf(c, unsubscribeDone, link))
}

// senderWait is how long the page waits for the sender's name, which it can do without. It is
// longer than a busy database takes to find one row, and a reader waits no longer than this.
const senderWait = 2 * time.Second

// viewOf names whose mailings the link is about. A mailing is kept for good; one that is not
// found, or a database that does not answer, leaves the name out.
func (a *API) viewOf(c *gin.Context, what string, link unsubscribe.Link) unsubscribeView {
	view := unsubscribeView{What: what, Address: email.MaskAddress(link.Address)}
	ctx, cancel := context.WithTimeout(c.Request.Context(), senderWait)
	defer cancel()
	mailing, err := within(ctx, func(ctx context.Context) (store.Mailing, error) {
		return a.store.FindMailing(ctx, link.Company, link.Mailing)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return view
	case err != nil:
		a.log.WarnContext(c.Request.Context(), "the unsubscribe page does not name the sender", telemetry.RequestID, visitOf(c).requestID, "error", email.MaskText(err.Error()))
		return view
	}
	view.Sender = senderName(mailing.Sender)
	return view
}

// senderName is what a mail program shows of From: the name, or else the address.
func senderName(from string) string {
	parsed, err := mail.ParseAddress(from)
	switch {
	case err != nil:
		return from
	case parsed.Name == "":
		return parsed.Address
	}
	return parsed.Name
}
