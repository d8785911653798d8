package unsubscribepage

import (
	"context"
	"errors"
	"net/http"
	"net/mail"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/suppression"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/unsubscribe"
)

// Ask shows the page of the link. It changes nothing: scanners and previews follow
// links too.
func (h *Handlers) Ask(c *gin.Context) error {
	link, err := h.keys.Open(c.Param("token"))
	if err != nil {
		return answer(c, http.StatusNotFound, pageView{What: pageInvalid})
	}
	return answer(c, http.StatusOK, h.viewOf(c, pageAsk, link))
}

// Unsubscribe handles the one-click POST of RFC 8058. It requires only the token: mail clients
// have neither cookies nor a key. The body is ignored.
func (h *Handlers) Unsubscribe(c *gin.Context) error {
	link, err := h.keys.Open(c.Param("token"))
	if errors.Is(err, unsubscribe.ErrInvalid) {
		return answer(c, http.StatusNotFound, pageView{What: pageInvalid})
	}
	if err != nil {
		return err
	}
	s := suppression.Suppression{Address: link.Address, Reason: suppression.Unsubscribed, MailingID: &link.Mailing}
	if err := h.store.Suppress(c.Request.Context(), link.Company, s); err != nil {
		return err
	}
	return answer(c, http.StatusOK, h.viewOf(c, pageDone, link))
}

// senderWait limits how long the page waits for the sender's name, which is optional. It is
// longer than a busy database needs to find one row.
const senderWait = 2 * time.Second

// viewOf adds the sender's name to the page. Mailings are kept forever; if the mailing is not
// found or the database does not answer, the name is left out.
func (h *Handlers) viewOf(c *gin.Context, what string, link unsubscribe.Link) pageView {
	view := pageView{What: what, Address: email.MaskAddress(link.Address)}
	ctx, cancel := context.WithTimeout(c.Request.Context(), senderWait)
	defer cancel()
	found, err := reqctx.WithDeadline(ctx, func(ctx context.Context) (mailing.Mailing, error) {
		return h.store.FindMailing(ctx, link.Company, link.Mailing)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return view
	case err != nil:
		h.log.WarnContext(c.Request.Context(), "cannot show the sender on the unsubscribe page", telemetry.RequestID, reqctx.StateOf(c).RequestID, "error", email.MaskText(err.Error()))
		return view
	}
	view.Sender = senderName(found.Sender)
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
