package deadletters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/emails"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
	emailstore "email-gateway/shared/store/emails"
)

// deadLetter is a dead letter in a list.
type deadLetter struct {
	ID         string                 `json:"id"`
	Target     string                 `json:"target"`
	Reason     string                 `json:"reason"`
	Detail     *string                `json:"detail,omitempty"`
	Attempts   int                    `json:"attempts"`
	OutboxID   *uuid.UUID             `json:"outboxId,omitempty"`
	MailingID  *uuid.UUID             `json:"mailingId,omitempty"`
	Recipient  *string                `json:"recipient,omitempty"`
	CreatedAt  time.Time              `json:"createdAt"`
	ResolvedAt *time.Time             `json:"resolvedAt,omitempty"`
	Resolution *deadletter.Resolution `json:"resolution,omitempty"`
	ResolvedBy *string                `json:"resolvedBy,omitempty"`
	Note       *string                `json:"note,omitempty"`
	ReplayID   *uuid.UUID             `json:"replayId,omitempty"`
}

// letterDetails is a single dead letter with its email.
type letterDetails struct {
	deadLetter
	Payload any             `json:"payload"`
	Email   *emails.Details `json:"email,omitempty"`
}

type listPage struct {
	DeadLetters []deadLetter `json:"deadLetters"`
	NextCursor  string       `json:"nextCursor,omitempty"`
}

// lastEvents is how many timeline events a dead letter shows: those of about two attempts.
const lastEvents = 10

const targetRule = "oneof=email:send mailing.process recipients.upsert"

// List handles GET /v1/dead-letters.
func (h *Handlers) List(c *gin.Context) error {
	wanted, q, err := readQuery(c.Request, h.rules)
	if err != nil {
		return err
	}
	found, err := h.store.ListDeadLetters(c.Request.Context(), reqctx.CompanyOf(c), wanted)
	if err != nil {
		return err
	}
	page := listPage{DeadLetters: make([]deadLetter, len(found.Letters))}
	for i, l := range found.Letters {
		page.DeadLetters[i] = deadLetterOf(l)
	}
	if found.Next != (deadletter.LetterCursor{}) {
		if page.NextCursor, err = q.EncodeCursor(letterCursor{found.Next.At.UTC(), found.Next.ID}); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, page)
	return nil
}

// letterCursor is the last row of a page.
type letterCursor struct {
	At time.Time `json:"t"`
	ID uuid.UUID `json:"i"`
}

func readQuery(r *http.Request, checks *rules.Rules) (deadletter.LetterQuery, *query.Query, error) {
	q, err := query.Open(r, checks)
	if err != nil {
		return deadletter.LetterQuery{}, nil, err
	}
	wanted := deadletter.LetterQuery{
		LetterFilter: deadletter.LetterFilter{
			Reason: q.Text("reason", "max=64,printable"), Target: q.Text("target", targetRule), Recipient: q.Address("recipient"),
			CreatedAfter: q.Moment("createdAfter"), CreatedBefore: q.Moment("createdBefore"),
		},
		Limit: q.Limit("limit"),
	}
	if id, err := rules.ParseID(q.Text("mailingId", "id")); err == nil {
		wanted.MailingID = &id
	}
	if resolved := q.Text("resolved", "oneof=true false"); resolved != "" {
		yes := resolved == "true"
		wanted.Resolved = &yes
	}
	var last letterCursor
	if q.CursorInto("cursor", &last) {
		if !query.WithinReason(last.At) {
			q.RejectCursor("cursor")
		}
		wanted.Cursor = deadletter.LetterCursor(last)
	}
	return wanted, q, q.Close()
}

func deadLetterOf(l deadletter.Letter) deadLetter {
	return deadLetter{
		ID: l.ID.String(), Target: l.Target, Reason: l.Reason, Detail: l.Detail, Attempts: l.Attempts, OutboxID: l.OutboxID,
		MailingID: l.MailingID, Recipient: l.Recipient, CreatedAt: l.CreatedAt.UTC(), ResolvedAt: response.InUTC(l.ResolvedAt),
		Resolution: l.Resolution, ResolvedBy: l.ResolvedBy, Note: l.Note, ReplayID: l.ReplayID,
	}
}

// Show handles GET /v1/dead-letters/{id}: the dead letter with its email.
func (h *Handlers) Show(c *gin.Context) error {
	found, err := h.find(c)
	if err != nil {
		return err
	}
	return h.answer(c, http.StatusOK, found)
}

// find finds the dead letter with the id in the path.
func (h *Handlers) find(c *gin.Context) (deadletter.Letter, error) {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return deadletter.Letter{}, noSuchDeadLetter
	}
	v := reqctx.StateOf(c)
	found, err := h.store.FindDeadLetter(c.Request.Context(), v.Caller.CompanyID, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return deadletter.Letter{}, noSuchDeadLetter
	case err != nil:
		return deadletter.Letter{}, err
	}
	if found.OutboxID != nil {
		v.OutboxID = found.OutboxID.String()
	}
	return found, nil
}

// answer responds with the dead letter.
func (h *Handlers) answer(c *gin.Context, status int, l deadletter.Letter) error {
	payload, err := payloadOf(l)
	if err != nil {
		return err
	}
	found, err := h.emailOf(c, l)
	if err != nil {
		return err
	}
	details := letterDetails{deadLetter: deadLetterOf(l), Payload: payload}
	if found != nil {
		shown, err := h.emails.DetailsOf(c, *found)
		if err != nil {
			return err
		}
		details.show(shown)
	}
	c.JSON(status, details)
	return nil
}

// show adds the email with its last events.
func (d *letterDetails) show(mail emails.Details) {
	mail.Events = mail.Events[max(0, len(mail.Events)-lastEvents):]
	d.Email = &mail
}

// payloadOf decodes the payload, without hashes.
func payloadOf(l deadletter.Letter) (payload any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(l.Payload))
	decoder.UseNumber()
	if err := decoder.Decode(&payload); err != nil {
		return nil, fmt.Errorf("read payload: %w", err)
	}
	email.MaskHashes(payload)
	return payload, nil
}

// emailOf finds the email of a dead letter; nil if it is of none, or the email is purged.
func (h *Handlers) emailOf(c *gin.Context, l deadletter.Letter) (*emailstore.Email, error) {
	if l.Target != email.TargetSend || l.OutboxID == nil {
		return nil, nil //nolint:nilnil // it has no email
	}
	found, err := h.emails.Read(c, *l.OutboxID)
	switch {
	case errors.Is(err, store.ErrNotFound): // purged
		return nil, nil //nolint:nilnil // it has no email any more
	case err != nil:
		return nil, err
	}
	return &found, nil
}
