package mailing_test

import (
	"context"
	"strings"
	"testing"

	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/worker/internal/mailing"
)

// sizingStore records how many bytes of fields a step has read at most.
type sizingStore struct {
	mailing.Store
	limit int
}

func (s *sizingStore) NextEntries(ctx context.Context, job *mailingstore.Job, positions []int64, limit int) (mailingstore.EntryPage, error) {
	page, err := s.Store.NextEntries(ctx, job, positions, limit)
	bytes := 0
	for _, e := range page.Entries {
		bytes += len(strings.Join(e.Fields, ""))
	}
	s.limit = max(s.limit, bytes)
	return page, err
}

// An entry may have half a megabyte of fields. A job reads those that the subject shows.
func TestProcessor_LargeFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ set, subject string }{
		"templates of the request": {`subject = '{{nome}} {{cidade}} {{fim}}', fields = '{texto,cidade,outro,fim}'`, "Ana Recife fim"},
		"a stored template": {
			`subject = '{{cidade}}{{#texto}} {{fim}}{{/texto}}', fields = '{texto,cidade,outro,fim}', template = 'a@1', template_variables = '[]'`, "Recife fim",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id, _ := b.mailing(t, many(400)...)
			b.exec(t, `UPDATE mailings SET `+c.set)
			b.exec(t, `UPDATE mailing_entries SET fields = ARRAY[repeat('x', 250000), cidade, repeat('y', 250000), 'fim'] FROM (SELECT 'Recife' AS cidade) c`)
			p := b.params()
			sizes := &sizingStore{Store: p.Store}
			p.Store = sizes
			if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
				t.Fatal(err)
			}
			b.drain(t, p)
			b.expandedOnce(t, id, 400)
			b.want(t, c.subject, `SELECT string_agg(DISTINCT payload ->> 'subject', ', ') FROM email_outbox WHERE target = 'email:send'`)
			if sizes.limit > 400*1000 {
				t.Errorf("a step reads %d bytes of fields", sizes.limit)
			}
		})
	}
}
