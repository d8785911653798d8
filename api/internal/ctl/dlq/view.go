package dlq

import (
	"context"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
)

// deadLetterView is a dead letter as printed. Its JSON names are those of the HTTP API.
type deadLetterView struct {
	ID         uuid.UUID              `json:"id"`
	CompanyID  *uuid.UUID             `json:"companyId,omitempty"`
	Company    string                 `json:"company,omitempty"`
	Target     string                 `json:"target"`
	Reason     string                 `json:"reason"`
	Detail     string                 `json:"detail,omitempty"`
	Attempts   int                    `json:"attempts"`
	OutboxID   *uuid.UUID             `json:"outboxId,omitempty"`
	MailingID  *uuid.UUID             `json:"mailingId,omitempty"`
	Recipient  string                 `json:"recipient,omitempty"` // masked unless --reveal
	CreatedAt  time.Time              `json:"createdAt"`
	ResolvedAt *time.Time             `json:"resolvedAt,omitempty"`
	Resolution *deadletter.Resolution `json:"resolution,omitempty"`
	ResolvedBy string                 `json:"resolvedBy,omitempty"`
	Note       string                 `json:"note,omitempty"`
	ReplayID   *uuid.UUID             `json:"replayId,omitempty"`
}

func viewDeadLetter(l deadletter.Letter, names map[uuid.UUID]string, masked bool) deadLetterView {
	v := deadLetterView{
		ID: l.ID, CompanyID: l.CompanyID, Target: l.Target, Reason: l.Reason, Detail: output.Optional(l.Detail), Attempts: l.Attempts,
		OutboxID: l.OutboxID, MailingID: l.MailingID, Recipient: output.Optional(l.Recipient), CreatedAt: l.CreatedAt.UTC(), ResolvedAt: output.UTC(l.ResolvedAt),
		Resolution: l.Resolution, ResolvedBy: output.Optional(l.ResolvedBy), Note: output.Optional(l.Note), ReplayID: l.ReplayID,
	}
	if l.CompanyID != nil {
		v.Company = names[*l.CompanyID]
	}
	if masked {
		v.Detail = email.MaskText(v.Detail)
		if v.Recipient != "" {
			v.Recipient = email.MaskAddress(v.Recipient)
		}
	}
	return v
}

// state describes the resolution in one word.
func (v deadLetterView) state() string {
	switch {
	case v.ResolvedAt == nil:
		return "open"
	case v.Resolution == nil:
		return "resolved"
	}
	return string(*v.Resolution)
}

// companyNames maps the ids of all companies to their names.
func companyNames(ctx context.Context, s *store.Store) (map[uuid.UUID]string, error) {
	all, err := s.Companies(ctx)
	names := make(map[uuid.UUID]string, len(all))
	for _, company := range all {
		names[company.ID] = company.Name
	}
	return names, err
}
