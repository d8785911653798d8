package pendingresults

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
)

const (
	// maxText bounds a text of the provider, of which a result has three at most, and maxValue a result.
	maxText  = 2 << 10
	maxValue = 16 << 10
	// maxDelay is more than the longest wait of a backoff.
	maxDelay = 24 * time.Hour
)

// result is a transition as JSON. A release of another version that has further fields is not read.
type result struct {
	ID                uuid.UUID     `json:"id"`
	Status            email.Status  `json:"status"`
	Events            []email.Event `json:"events"`
	AddAttempts       int           `json:"addAttempts,omitempty"`
	AddThrottles      int           `json:"addThrottles,omitempty"`
	Delay             time.Duration `json:"delay,omitempty"`
	OutcomeUnknown    bool          `json:"outcomeUnknown,omitempty"`
	PossibleDuplicate bool          `json:"possibleDuplicate,omitempty"`
	DeadLetter        bool          `json:"deadLetter,omitempty"`
	ErrorCode         string        `json:"errorCode,omitempty"`
	ErrorReason       string        `json:"errorReason,omitempty"`
	SESMessageID      string        `json:"sesMessageId,omitempty"`
	Duration          time.Duration `json:"duration"`
}

func encode(t outbox.Transition) ([]byte, error) {
	r := result{
		ID: t.ID, Status: t.Status, Events: slices.Clone(t.Events), AddAttempts: t.AddAttempts, AddThrottles: t.AddThrottles, Delay: t.Delay,
		OutcomeUnknown: t.OutcomeUnknown, PossibleDuplicate: t.PossibleDuplicate, DeadLetter: t.DeadLetter,
		ErrorCode: t.ErrorCode, ErrorReason: text(t.ErrorReason), SESMessageID: t.SESMessageID, Duration: t.Duration,
	}
	for i, e := range r.Events {
		metadata := make(map[string]any, len(e.Metadata))
		for name, value := range e.Metadata {
			if s, ok := value.(string); ok && e.Type != email.EventSent { // of which only the provider's id is a text
				value = text(s)
			}
			metadata[name] = value
		}
		r.Events[i].Metadata = metadata
	}
	value, err := json.Marshal(r)
	switch {
	case err != nil:
		return nil, err
	case t.Guard != outbox.GuardAttempt || !r.valid() || len(value) > maxValue:
		return nil, errors.New("not the result of an attempt, or too large")
	}
	return value, nil
}

// text returns a text of the provider in the form in which it is logged, and cut.
func text(s string) string {
	s = email.MaskText(s)
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

func decode(value []byte, token uuid.UUID) (outbox.Transition, bool) {
	var r result
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.DisallowUnknownFields()
	if len(value) > maxValue || decoder.Decode(&r) != nil || !r.valid() {
		return outbox.Transition{}, false
	}
	return outbox.Transition{
		ID: r.ID, Guard: outbox.GuardAttempt, Token: token, Status: r.Status, Events: r.Events, AddAttempts: r.AddAttempts, AddThrottles: r.AddThrottles,
		Delay: r.Delay, OutcomeUnknown: r.OutcomeUnknown, PossibleDuplicate: r.PossibleDuplicate, DeadLetter: r.DeadLetter,
		ErrorCode: r.ErrorCode, ErrorReason: r.ErrorReason, SESMessageID: r.SESMessageID, Duration: r.Duration,
	}, true
}

// valid reports whether an attempt can have this result: the provider accepted the email, or it failed for good, or it is tried
// again. Postgres checks the order of the events.
func (r *result) valid() bool {
	switch r.Status {
	case email.Sent:
		if r.SESMessageID == "" || r.DeadLetter || r.OutcomeUnknown {
			return false
		}
	case email.Failed:
		if r.ErrorCode == "" || !r.DeadLetter {
			return false
		}
	case email.RetryScheduled:
		if r.DeadLetter || r.OutcomeUnknown != r.PossibleDuplicate {
			return false
		}
	default:
		return false
	}
	return r.ID != uuid.Nil && len(r.Events) > 0 && string(r.Events[len(r.Events)-1].Type) == string(r.Status) &&
		(r.AddAttempts == 0 || r.AddAttempts == -1 && r.Status == email.RetryScheduled) &&
		(r.AddThrottles == 0 || r.AddThrottles == 1) && 0 <= r.Delay && r.Delay <= maxDelay && r.Duration > 0
}
