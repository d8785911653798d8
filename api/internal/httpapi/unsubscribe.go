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

// askToUnsubscribe shows the page of the link. It changes nothing: scanners and previews follow
// links too.
func (a *API) askToUnsubscribe(c *gin.Context) error {
	link, err := a.unsubscribeKeys.Open(c.Param("token"))
	if err != nil {
		return answerUnsubscribe(c, http.StatusNotFound, unsubscribeView{What: unsubscribeInvalid})
	}
	return answerUnsubscribe(c, http.StatusOK, a.viewOf(c, unsubscribeAsk, link))
}

// unsubscribe handles the one-click POST of RFC 8058. It requires only the token: mail clients
// have neither cookies nor a key. The body is ignored.
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

// senderWait limits how long the page waits for the sender's name, which is optional. It is
// longer than a busy database needs to find one row.
const senderWait = 2 * time.Second

// viewOf adds the sender's name to the page. Mailings are kept forever; if the mailing is not
// found or the database does not answer, the name is left out.
func (a *API) viewOf(c *gin.Context, what string, link unsubscribe.Link) unsubscribeView {
	view := unsubscribeView{What: what, Address: email.MaskAddress(link.Address)}
	ctx, cancel := context.WithTimeout(c.Request.Context(), senderWait)
	defer cancel()
	mailing, err := withDeadline(ctx, func(ctx context.Context) (store.Mailing, error) {
		return a.store.FindMailing(ctx, link.Company, link.Mailing)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return view
	case err != nil:
		a.log.WarnContext(c.Request.Context(), "cannot show the sender on the unsubscribe page", telemetry.RequestID, visitOf(c).requestID, "error", email.MaskText(err.Error()))
		return view
	}
	view.Sender = senderName(mailing.Sender)
	return view
}

// senderName returns the name in From, or the address if there is none.
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
