package outbox

import (
	"testing"

	"email-gateway/shared/email"
	"email-gateway/shared/store/recipient"
)

// A group is written by advance_plain.sql only if no email of it needs what that statement lacks.
func TestPlain(t *testing.T) {
	t.Parallel()
	claim := Transition{Guard: GuardClaim, Status: email.Processing, AddAttempts: 1}
	sent := Transition{Guard: GuardAttempt, Status: email.Sent, SESMessageID: "1", OutcomeUnknown: true, ErrorCode: "C"}
	if !isPlain([]Transition{claim, sent}) {
		t.Error("a claim without a recipient and the end of an attempt are not plain")
	}
	for name, change := range map[string]func(*Transition){
		"gives way":     func(t *Transition) { t.GiveWay = true },
		"a recipient":   func(t *Transition) { t.Recipient = &recipient.Recipient{} },
		"a dead letter": func(t *Transition) { t.DeadLetter = true },
		"a replay":      func(t *Transition) { t.Guard = GuardReplay },
	} {
		other := claim
		change(&other)
		if isPlain([]Transition{claim, other}) {
			t.Errorf("%s: a group with it is plain", name)
		}
	}
}
