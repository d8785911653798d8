package privacy_test

import (
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/privacy"
	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// A program stores the plain hash of a number, because the SQL functions and the worker do not have the hash key. It names the
// same person as the keyed hash that the api stores.
func TestErase_PlainHashOfProgram(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func(*privacy.Query){
		"by number":  func(q *privacy.Query) { q.TaxID = joanaCPF },
		"by address": func(q *privacy.Query) { q.Address = later },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEmptyWorld(t)
			w.archive.HashKey = []byte("a key of thirty-two bytes or more")
			keyed, plain := email.HashTaxID(joanaCPF, w.archive.HashKey), email.HashTaxID(joanaCPF, nil)
			byAPI := w.Accept(t, w.company, func(e *outbox.NewEmail) {
				e.Job.To, e.Job.Recipient = later, email.JobRecipient{ExternalID: "c-joana", CPFCNPJHash: keyed, Email: later}
			})
			byProgram := storetest.Ask[uuid.UUID](t, w.Database, `SELECT outbox_id FROM email_gateway_enqueue($1, 'interview', '42', 'REMINDER', jsonb_build_object(
				'to', $2::text, 'subject', 's', 'html', '<p>x</p>', 'recipient', jsonb_build_object('externalId', 'c-joana', 'cpfCnpjHash', $3::text)))`, w.company, later, plain)
			for _, id := range []uuid.UUID{byAPI, byProgram} {
				w.end(t, id, w.claimed(t, id), email.Sent, false)
			}
			q := privacy.Query{CompanyID: w.company}
			find(&q)
			done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = q })
			if err != nil || !done.Complete() || done.Shared != 0 || done.Emails != 2 {
				t.Errorf("%+v, %v", done, err)
			}
			w.mustNotName(t, later, keyed, plain, "c-joana")
		})
	}
}
