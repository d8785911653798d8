package webhook

import (
	"context"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/event"
)

// disabledEvent is the metadata of WebhookDisabled. It omits the URL, which may contain a password.
type disabledEvent struct {
	WebhookID uuid.UUID `json:"webhookId"`
	Reason    Reason    `json:"reason"`
	LastError string    `json:"lastError,omitempty"`
}

// addDisabled adds the event in the transaction that disables the endpoint. The company's other endpoints receive the
// event at once, and this endpoint when it is enabled again.
func addDisabled(ctx context.Context, tx *sqlx.Tx, e Endpoint) error {
	return event.AddOfCompany(ctx, tx, e.CompanyID, event.WebhookDisabled, disabledEvent{WebhookID: e.ID, Reason: *e.DisabledReason, LastError: orZero(e.LastError)})
}
