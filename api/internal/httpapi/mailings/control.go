package mailings

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/store/lane"
	mailingstore "email-gateway/shared/store/mailing"
)

// Start starts a mailing that was uploaded without starting it.
func (h *Handlers) Start(c *gin.Context) error { return h.control(c, h.Store.StartMailing) }

// Pause pauses a mailing.
func (h *Handlers) Pause(c *gin.Context) error { return h.control(c, h.Store.PauseMailing) }

// Resume continues a paused mailing.
func (h *Handlers) Resume(c *gin.Context) error { return h.control(c, h.Store.ResumeMailing) }

// Cancel ends a mailing.
func (h *Handlers) Cancel(c *gin.Context) error { return h.control(c, h.Store.CancelMailing) }

// RetryFailed retries the entries of a mailing that failed.
func (h *Handlers) RetryFailed(c *gin.Context) error { return h.control(c, h.Store.RetryFailedEntries) }

// control handles an action on a mailing; the response is the mailing afterwards.
func (h *Handlers) control(c *gin.Context, step func(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error)) error {
	id, err := mailingID(c)
	if err != nil {
		return err
	}
	return h.change(c, id, step)
}

// change changes a mailing and answers with it. The attachments are read before, because they do not change and the
// answer must not fail once the change is committed, and without a slot: a company whose searches have all its slots must
// still be able to pause a mailing.
func (h *Handlers) change(c *gin.Context, id uuid.UUID, step func(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error)) error {
	ctx, company := c.Request.Context(), reqctx.CompanyOf(c)
	attached, err := h.AttachmentStore.Attachments(ctx, company, id)
	if err != nil {
		return err
	}
	after, err := step(ctx, company, id)
	if err != nil {
		return problemOf(err)
	}
	h.Wake(lane.Lanes{Company: company})
	c.JSON(http.StatusOK, detailsOf(after, attached))
	return nil
}

// Reschedule changes the start time of a mailing that has not started. It is idempotent. The new time may be earlier than
// the one that the dispatchers know: change wakes them.
func (h *Handlers) Reschedule(c *gin.Context) error {
	sendAt, err := h.SendAt.Read(c)
	if err != nil {
		return err
	}
	id, err := mailingID(c)
	if err != nil {
		return err
	}
	return h.change(c, id, func(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error) {
		return h.Store.MoveMailing(ctx, company, id, sendAt)
	})
}
