package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// A list by PENDING or RETRY_SCHEDULED holds every such email once, the newest first, whatever
// lane it is in and whenever it is due; also where so many wait that it goes in steps.
func TestListEmails_Waiting(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	var pending, tagged, retried []uuid.UUID
	for i := range 40 {
		id := d.Accept(t, company, func(e *outbox.NewEmail) {
			e.Priority = 1 + i%10
			if i%3 == 0 { // the order by id is not the order by time
				e.SendAt = time.Now().Add(time.Duration(50-i) * time.Hour)
			}
			if i%4 == 0 {
				e.Job.Tags = []string{"x", "reminder"}
			}
		})
		d.Accept(t, other, func(e *outbox.NewEmail) { e.Job.Tags = []string{"reminder"} })
		switch {
		case i == 8:
			storetest.OfMailing(t, d, company, id)
		case i%5 == 4:
			run(t, d, `UPDATE email_outbox SET next_at = now() WHERE id = $1`, id)
			token := uuid.New()
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.SentOf(id, token))
			continue
		case i%5 == 3:
			run(t, d, `UPDATE email_outbox SET status = 'RETRY_SCHEDULED', next_at = now() + interval '1 hour' WHERE id = $1`, id)
			retried = append(retried, id)
			continue
		}
		pending = append(pending, id)
		if i%4 == 0 {
			tagged = append(tagged, id)
		}
	}
	lists := map[string]struct {
		filter emails.Filter
		want   []uuid.UUID
	}{
		"pending":    {emails.Filter{Status: email.Pending}, pending},
		"tag":        {emails.Filter{Status: email.Pending, Tag: "reminder"}, tagged},
		"other tag":  {emails.Filter{Status: email.Pending, Tag: "remind"}, nil},
		"from until": {emails.Filter{Status: email.Pending, From: pending[3], Until: pending[9]}, pending[3:9]},
		"retried":    {emails.Filter{Status: email.RetryScheduled}, retried},
	}
	check := func(when, name string, limits ...int) {
		t.Helper()
		f, want := lists[name].filter, append([]uuid.UUID{}, lists[name].want...)
		slices.Reverse(want)
		for _, f.Limit = range limits {
			if diff := cmp.Diff(want, pages(t, d, company, f)); diff != "" {
				t.Errorf("%s, %s, %d a page: %s", when, name, f.Limit, diff)
			}
		}
	}
	for name := range lists {
		check("few wait", name, 1, 3, 100)
	}
	run(t, d, `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, status, processed_at, expires_at, created_at)
		SELECT ('ffffffff-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, o.company_id, o.lane_id, 'newer', '{"to": "a@example.com", "subject": "s"}', o.sender, '<p>', '', 1,
		       'SENT', now(), now() + interval '1 day', now()
		FROM email_outbox o, generate_series(1, $2) n WHERE o.id = $1`, pending[0], writtenNumber(t, "emails.ListScan")+100)
	for name, list := range lists {
		check("behind many", name, 3, 100)
		list.filter.Limit = 100
		if page, err := d.Store.ListEmails(t.Context(), company, list.filter); err != nil || len(page.Emails) != len(list.want) || page.Next != uuid.Nil {
			t.Errorf("%s, behind many: %d emails in one request, then %v, %v", name, len(page.Emails), page.Next, err)
		}
	}
	run(t, d, `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, status, expires_at, created_at)
		SELECT gen_random_uuid(), o.company_id, o.lane_id, 'crowd', '{"to": "a@example.com", "subject": "s"}', o.sender, '<p>', '', 1,
		       'RETRY_SCHEDULED', now() + interval '1 day', now()
		FROM email_outbox o, generate_series(1, $2) WHERE o.id = $1`, pending[0], writtenNumber(t, "emails.waitingScan"))
	for _, name := range []string{"pending", "tag", "from until"} {
		check("many wait", name, 3, 100)
	}
}
