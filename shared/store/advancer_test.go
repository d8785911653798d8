package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// Another session has locked a row that one email of a group needs. The others of the group are written without waiting
// for it. The locked email is reported as Locked, is unchanged, and is written once the session has ended.
func TestAdvancer_SkipsLockedEmail(t *testing.T) {
	t.Parallel()
	claim := func(t *testing.T, d storetest.Database, company, id uuid.UUID) outbox.Transition {
		c := storetest.ClaimOf(company, id, uuid.New(), "CUST-"+id.String())
		c.Recipient.ID = uuid.NewSHA1(uuid.NameSpaceOID, id[:])
		return c
	}
	result := func(t *testing.T, d storetest.Database, company, id uuid.UUID) outbox.Transition {
		c := claim(t, d, company, id)
		storetest.Apply(t, d, c)
		return storetest.SentOf(id, c.Token)
	}
	cancel := func(_ *testing.T, _ storetest.Database, _, id uuid.UUID) outbox.Transition {
		return storetest.CancelOf(id)
	}
	person := `INSERT INTO recipients (id, company_id, email) SELECT $2, company_id, 'ana@example.com' FROM email_outbox WHERE id = $1`
	for name, tt := range map[string]struct {
		make    func(t *testing.T, d storetest.Database, company, id uuid.UUID) outbox.Transition
		prepare string // by the email's id and that of its recipient
		lock    string
	}{
		"claim, its row":         {claim, ``, `SELECT FROM email_outbox WHERE id = $1 AND $2::uuid IS NOT NULL FOR UPDATE`},
		"claim, its row changed": {claim, ``, `UPDATE email_outbox SET priority = priority WHERE id = $1 AND $2::uuid IS NOT NULL`},
		"claim, its recipient":   {claim, person, `SELECT FROM recipients WHERE id = $2 AND $1::uuid IS NOT NULL FOR UPDATE`},
		"claim, a new recipient": {claim, ``, person},
		"result, its row":        {result, ``, `SELECT FROM email_outbox WHERE id = $1 AND $2::uuid IS NOT NULL FOR UPDATE`},
		"result, its log":        {result, ``, `SELECT FROM email_logs WHERE outbox_id = $1 AND $2::uuid IS NOT NULL FOR UPDATE`},
		"cancel, its row":        {cancel, ``, `SELECT FROM email_outbox WHERE id = $1 AND $2::uuid IS NOT NULL FOR UPDATE`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			advancer := d.Store.NewAdvancer()
			const n = 40
			makeAll := func() []outbox.Transition {
				ts := make([]outbox.Transition, n)
				for i := range ts {
					ts[i] = tt.make(t, d, company, d.Accept(t, company, nil))
				}
				return ts
			}
			ts := makeAll()
			held, before := ts[17], ask[string](t, d, `SELECT to_jsonb(o) FROM email_outbox o WHERE id = $1`, ts[17].ID)
			person := uuid.NewSHA1(uuid.NameSpaceOID, held.ID[:])
			if tt.prepare != "" {
				run(t, d, tt.prepare, held.ID, person)
			}
			release := lock(t, d, tt.lock, held.ID, person)
			got := advanceTogether(t, advancer, ts)
			for i := range ts {
				if i == 17 != got[i].Locked || i == 17 == got[i].Applied {
					t.Errorf("email %d: %+v", i, got[i])
				}
			}
			if now := ask[string](t, d, `SELECT to_jsonb(o) FROM email_outbox o WHERE id = $1`, held.ID); now != before {
				t.Errorf("the locked email changed from %s to %s", before, now)
			}
			// The next try does not delay the other emails of its group.
			fresh := []outbox.Transition{held}
			for range 5 {
				fresh = append(fresh, tt.make(t, d, company, d.Accept(t, company, nil)))
			}
			for i, again := range advanceTogether(t, advancer, fresh) {
				if i == 0 != again.Locked || i == 0 == again.Applied {
					t.Errorf("again, email %d: %+v", i, again)
				}
			}
			release()
			if again, err := advancer.Advance(t.Context(), held); err != nil || !again.Applied {
				t.Errorf("after the lock was released: %+v, %v", again, err)
			}
		})
	}
}

// A foreign session has locked most recipients of a company, whose emails are claimed again and
// again. Only the first of them is waited for: no other email of that company, and none of another
// one, waits for more than the group that it joins.
func TestAdvancer_LockedRecipientsOfOneCompany(t *testing.T) {
	t.Parallel()
	const locked, free = 100, 20
	d := storetest.New(t)
	company := d.Company(t)
	advancer := d.Store.NewAdvancer()
	claims := make([]outbox.Transition, locked)
	for i := range claims {
		claims[i] = claimWithCompany(company, d.Accept(t, company, nil))
		run(t, d, `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'ana@example.com')`, claims[i].Recipient.ID, company)
	}
	var others []outbox.Transition
	for _, of := range []uuid.UUID{company, d.Company(t)} {
		for range free {
			others = append(others, claimWithCompany(of, d.Accept(t, of, nil)))
		}
	}
	release := lock(t, d, `SELECT FROM recipients WHERE company_id = $1 FOR UPDATE`, company)
	stop := make(chan struct{})
	var claiming sync.WaitGroup
	for worker := range 16 { // as a worker's do, each with one task after the other
		claiming.Go(func() {
			for i := worker; ; i = (i + 16) % locked {
				select {
				case <-stop:
					return
				default:
				}
				if done, err := advancer.Advance(t.Context(), claims[i]); err != nil || done.Applied {
					t.Errorf("a locked claim: %+v, %v", done, err)
				}
			}
		})
	}
	waits := 0 // how often a group was found to wait for a lock
	for _, claim := range others {
		if done, err := advancer.Advance(t.Context(), claim); err != nil || !done.Applied {
			t.Errorf("an email whose recipient is free: %+v, %v", done, err)
		}
		waits += ask[int](t, d, `SELECT least(count(*), 1) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	t.Logf("a group waited beside %d of %d claims", waits, len(others))
	if waits > len(others)/2 {
		t.Errorf("a group waited for locked recipients beside %d of %d claims", waits, len(others))
	}
	close(stop)
	claiming.Wait()
	release()
	if done, err := advancer.Advance(t.Context(), claims[0]); err != nil || !done.Applied {
		t.Errorf("after the lock was released: %+v, %v", done, err)
	}
}

// claimWithCompany is a claim that is given up when the email is locked, as the worker's is.
func claimWithCompany(company, id uuid.UUID) outbox.Transition {
	c := storetest.ClaimOf(company, id, uuid.New(), "CUST-"+id.String())
	c.Recipient.ID, c.Company = uuid.NewSHA1(uuid.NameSpaceOID, id[:]), company
	return c
}

// lock runs a statement in another session, and returns a function that ends its transaction.
func lock(t *testing.T, d storetest.Database, statement string, args ...any) (release func()) {
	t.Helper()
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// advanceTogether gives the transitions to the advancer at the same time.
func advanceTogether(t *testing.T, a *outbox.Advancer, ts []outbox.Transition) []outbox.Advanced {
	t.Helper()
	got := make([]outbox.Advanced, len(ts))
	var wg sync.WaitGroup
	for i, transition := range ts {
		wg.Go(func() {
			var err error
			if got[i], err = a.Advance(t.Context(), transition); err != nil {
				t.Errorf("email %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	return got
}

// As many results as there may be wait for locked logs. They take no more connections than
// leave the pool to others, and are written when the locks are gone.
func TestAdvancer_LockedResultsLeaveThePoolToOthers(t *testing.T) {
	t.Parallel()
	const n = 64
	d := storetest.New(t)
	company := d.Company(t)
	s := open(t, d.URL, store.Options{MaxConns: 6})
	advancer := s.NewAdvancer()
	results := make([]outbox.Transition, n)
	for i := range results {
		id, token := inStatus(t, d, company, email.Processing)
		results[i] = storetest.SentOf(id, token)
	}
	free, token := inStatus(t, d, company, email.Processing)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_logs WHERE outbox_id <> $1 FOR UPDATE`, free); err != nil {
		t.Fatal(err)
	}
	written, stop := make(chan error, n), make(chan struct{})
	var tried sync.WaitGroup
	tried.Add(n)
	for _, r := range results {
		go func() {
			first := sync.OnceFunc(tried.Done)
			for {
				done, err := advancer.Advance(context.WithoutCancel(t.Context()), r)
				first()
				if err == nil && done.Locked {
					select {
					case <-stop:
						err = fmt.Errorf("%s is still locked", r.ID)
					case <-time.After(10 * time.Millisecond):
						continue
					}
				}
				written <- err
				return
			}
		}()
	}
	tried.Wait()
	defer close(stop)
	for range 20 { // while all of them are tried again and again
		if err := s.Ping(t.Context()); err != nil {
			t.Fatalf("another statement: %v", err)
		}
	}
	if done, err := advancer.Advance(t.Context(), storetest.SentOf(free, token)); err != nil || !done.Applied {
		t.Errorf("another result: %+v, %v", done, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for range results {
		select {
		case err := <-written:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(3 * time.Minute):
			t.Fatal("a result was not written after its lock was released")
		}
	}
	if sent := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE status = 'SENT'`); sent != n+1 {
		t.Errorf("%d SENT, want %d", sent, n+1)
	}
}
