package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/storetest"
)

// insertDeadLetters writes n dead letters of the company, a second apart, whose reasons repeat the
// given ones. The newest is the last; company nil is for tasks that cannot be decoded.
func insertDeadLetters(t *testing.T, d storetest.Database, company *uuid.UUID, n int, reasons ...string) {
	t.Helper()
	run(t, d, `
		INSERT INTO dead_letters (id, company_id, target, reason, email, payload, created_at)
		SELECT gen_random_uuid(), $1, 'email:send', ($3::text[])[1 + (n - 1) % cardinality($3::text[])], 'user' || n || '@Example.com', '{}',
		       date_trunc('second', now()) - interval '1 h' + n * interval '1 s'
		FROM generate_series(1, $2) n`, company, n, "{"+strings.Join(reasons, ",")+"}")
}

// walk reads page after page and returns the recipients in order.
func walk(t *testing.T, list func(deadletter.LetterQuery) (deadletter.LetterPage, error), q deadletter.LetterQuery) (recipients []string, pages int) {
	t.Helper()
	for {
		page, err := list(q)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		if len(page.Letters) > q.Limit {
			t.Fatalf("%d on a page of %d", len(page.Letters), q.Limit)
		}
		for _, l := range page.Letters {
			name, _, _ := strings.Cut(*l.Recipient, "@")
			recipients = append(recipients, name)
		}
		if page.Next == (deadletter.LetterCursor{}) {
			return recipients, pages
		}
		q.Cursor = page.Next
	}
}

func TestListDeadLetters(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	insertDeadLetters(t, d, &company, 9, "A", "B", "C")
	insertDeadLetters(t, d, &other, 2, "A")
	insertDeadLetters(t, d, nil, 1, "INVALID_PAYLOAD")
	mailing := uuid.New()
	run(t, d, `UPDATE dead_letters SET mailing_id = $1, target = 'mailing.process' WHERE company_id = $2 AND email LIKE 'user4@%'`, mailing, company)
	run(t, d, `UPDATE dead_letters SET resolved_at = now(), resolution = 'retried' WHERE company_id = $1 AND email LIKE 'user9@%'`, company)
	of := func(q deadletter.LetterQuery) (deadletter.LetterPage, error) {
		return d.Store.ListDeadLetters(t.Context(), company, q)
	}
	all := func(q deadletter.LetterQuery) (deadletter.LetterPage, error) {
		return d.Store.ListAllDeadLetters(t.Context(), q)
	}
	yes, no := true, false
	from := ask[time.Time](t, d, `SELECT created_at FROM dead_letters WHERE company_id = $1 AND email LIKE 'user3@%'`, company)
	until := ask[time.Time](t, d, `SELECT created_at FROM dead_letters WHERE company_id = $1 AND email LIKE 'user6@%'`, company)

	for name, tt := range map[string]struct {
		query deadletter.LetterQuery
		want  string
	}{
		"all":       {deadletter.LetterQuery{}, "user9 user8 user7 user6 user5 user4 user3 user2 user1"},
		"reason":    {deadletter.LetterQuery{LetterFilter: deadletter.LetterFilter{Reason: "B"}}, "user8 user5 user2"},
		"target":    {deadletter.LetterQuery{LetterFilter: deadletter.LetterFilter{Target: "mailing.process"}}, "user4"},
		"mailing":   {deadletter.LetterQuery{LetterFilter: deadletter.LetterFilter{MailingID: &mailing}}, "user4"},
		"recipient": {deadletter.LetterQuery{LetterFilter: deadletter.LetterFilter{Recipient: "USER7@example.com"}}, "user7"},
		"time":      {deadletter.LetterQuery{LetterFilter: deadletter.LetterFilter{CreatedAfter: &from, CreatedBefore: &until}}, "user5 user4 user3"},
		"open":      {deadletter.LetterQuery{Resolved: &no, LetterFilter: deadletter.LetterFilter{Reason: "C"}}, "user6 user3"},
		"resolved":  {deadletter.LetterQuery{Resolved: &yes}, "user9"},
		"none":      {deadletter.LetterQuery{LetterFilter: deadletter.LetterFilter{Reason: "D"}}, ""},
	} {
		for _, limit := range []int{1, 3, 9, 100} {
			tt.query.Limit = limit
			if got, _ := walk(t, of, tt.query); strings.Join(got, " ") != tt.want {
				t.Errorf("%s by %d: %v, want %s", name, limit, got, tt.want)
			}
		}
	}
	if got, _ := walk(t, all, deadletter.LetterQuery{Limit: 5}); len(got) != 12 {
		t.Errorf("of all companies: %v", got)
	}
	if n, err := d.Store.CountDeadLetters(t.Context(), &company, deadletter.LetterFilter{}); n != 8 || err != nil {
		t.Errorf("%d open, %v", n, err)
	}
	if n, err := d.Store.CountDeadLetters(t.Context(), nil, deadletter.LetterFilter{Reason: "A"}); n != 5 || err != nil {
		t.Errorf("%d open of all, %v", n, err)
	}
}

// What is rare is found, though a page looks at a bounded number of rows, and equal times
// do not make a page lose or repeat a row.
func TestListDeadLetters_RareAndAtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	insertDeadLetters(t, d, &company, 12000, "COMMON")
	run(t, d, `UPDATE dead_letters SET reason = 'RARE' WHERE email IN ('user3@Example.com', 'user11000@Example.com')`)
	of := func(q deadletter.LetterQuery) (deadletter.LetterPage, error) {
		return d.Store.ListDeadLetters(t.Context(), company, q)
	}
	got, pages := walk(t, of, deadletter.LetterQuery{Limit: 50, LetterFilter: deadletter.LetterFilter{Reason: "RARE"}})
	if diff := cmp.Diff([]string{"user11000", "user3"}, got); diff != "" || pages < 3 {
		t.Errorf("%d pages: %s", pages, diff)
	}
	run(t, d, `ANALYZE dead_letters`)
	plan := storetest.Explain(t, storetest.Connect(t, d, store.Options{}), written(t, "deadletter.listLettersSQL"), company, nil, nil, nil, nil, "", "", nil, "", "", nil, 5000, 50)
	if !strings.Contains(plan, " using dead_letters_company ") || strings.Contains(plan, "Seq Scan on dead_letters") {
		t.Errorf("the plan:\n%s", plan)
	}

	run(t, d, `UPDATE dead_letters SET created_at = now()`)
	seen := make(map[string]bool)
	got, _ = walk(t, of, deadletter.LetterQuery{Limit: 1000})
	for _, name := range got {
		seen[name] = true
	}
	if len(got) != 12000 || len(seen) != 12000 {
		t.Errorf("%d rows, %d of them different", len(got), len(seen))
	}
}

func TestFindDeadLetter(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	insertDeadLetters(t, d, &company, 1, "A")
	insertDeadLetters(t, d, nil, 1, "B")
	own := ask[uuid.UUID](t, d, `SELECT id FROM dead_letters WHERE reason = 'A'`)
	nobodys := ask[uuid.UUID](t, d, `SELECT id FROM dead_letters WHERE reason = 'B'`)
	found, err := d.Store.FindDeadLetter(t.Context(), company, own)
	if err != nil || found.Reason != "A" || string(found.Payload) != "{}" || found.ResolvedAt != nil {
		t.Errorf("%+v, %v", found, err)
	}
	for _, tt := range []struct{ company, id uuid.UUID }{{other, own}, {company, nobodys}, {uuid.Nil, nobodys}, {company, uuid.New()}} {
		if _, err := d.Store.FindDeadLetter(t.Context(), tt.company, tt.id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%v: %v", tt, err)
		}
	}
	for _, id := range []uuid.UUID{own, nobodys} {
		if found, err := d.Store.FindAnyDeadLetter(t.Context(), id); err != nil || found.ID != id {
			t.Errorf("%+v, %v", found, err)
		}
	}
	if got := fmt.Sprint(audit.Actor{By: audit.ByAPI, Name: "key1"}); got != "api:key1" {
		t.Error(got)
	}
}
