package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

func TestIdempotencyKey_TheSecondRequestGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	accepter := d.Store.NewAccepter()
	accept := func(company uuid.UUID, key idempotency.Key) error {
		return accepter.Accept(t.Context(), storetest.NewEmail(company, func(e *outbox.NewEmail) { e.Idempotency = &key }))
	}
	first := *keyFor("k")
	if err := accept(company, first); err != nil {
		t.Fatal(err)
	}
	second := first
	second.Answer, second.BodySHA256 = []byte("another"), slices.Repeat([]byte{8}, 32)
	var used *idempotency.UsedError
	if err := accept(company, second); !errors.As(err, &used) {
		t.Fatalf("got %v, want KeyUsedError", err)
	}
	want := idempotency.StoredAnswer{BodySHA256: first.BodySHA256, Status: 202, Answer: first.Answer}
	if diff := cmp.Diff(want, used.Answer); diff != "" {
		t.Error(diff)
	}
	if got, err := d.Store.FindAnswer(t.Context(), company, first.Route, "k"); err != nil || !cmp.Equal(got, want) {
		t.Errorf("find: %+v, %v", got, err)
	}
	// The same key elsewhere is another key.
	elsewhere := first
	elsewhere.Route = "POST /v1/email/batch"
	for _, err := range []error{accept(other, first), accept(company, elsewhere), accept(company, *keyFor("K"))} {
		if err != nil {
			t.Error(err)
		}
	}
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox`); n != 4 {
		t.Errorf("%d emails, want 4", n)
	}
	if _, err := d.Store.FindAnswer(t.Context(), other, first.Route, "nobody's"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("unknown key: %v", err)
	}
}

// An empty key would match every other empty key: the database rejects it.
func TestIdempotencyKey_EmptyIsRefused(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	e := storetest.NewEmail(d.Company(t), func(e *outbox.NewEmail) { e.Idempotency = keyFor("") })
	var used *idempotency.UsedError
	if err := d.Store.NewAccepter().Accept(t.Context(), e); err == nil || errors.As(err, &used) {
		t.Errorf("got %v", err)
	}
}

// Two processes get the same requests at once: each key creates one email, and the groups, which contain the same keys in any
// order, do not deadlock.
func TestIdempotencyKey_ManyAtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	accepters := []*outbox.Accepter{d.Store.NewAccepter(), open(t, d.URL, store.Options{}).NewAccepter()}
	const keys, requests = 20, 32
	var wg sync.WaitGroup
	var accepted, replayed atomic.Int64
	start := make(chan struct{})
	for i := range keys * requests {
		e := storetest.NewEmail(company, func(e *outbox.NewEmail) { e.Idempotency = keyFor(fmt.Sprint("key-", i*7%keys)) })
		wg.Go(func() {
			<-start
			err := accepters[i%2].Accept(t.Context(), e)
			var used *idempotency.UsedError
			switch {
			case err == nil:
				accepted.Add(1)
			case errors.As(err, &used):
				replayed.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	rows := ask[int](t, d, `SELECT count(*) FROM email_outbox o JOIN idempotency_keys k ON k.outbox_id = o.id`)
	if accepted.Load() != keys || replayed.Load() != keys*(requests-1) || rows != keys {
		t.Errorf("%d accepted, %d replayed, %d rows", accepted.Load(), replayed.Load(), rows)
	}
}

// A concurrent request waits for the request that holds its key, and returns according to its outcome.
func TestIdempotencyKey_WaitsForTheFirst(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprint("commit=", commit), func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			tx, err := d.SQL.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(t.Context(), `
				INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
				VALUES ($1, 'POST /v1/email/send', 'k', decode(repeat('07', 32), 'hex'), 202, 'first', gen_random_uuid(), now() + interval '1 h')`, company); err != nil {
				t.Fatal(err)
			}
			result := make(chan error, 1)
			go func() {
				result <- d.Store.NewAccepter().Accept(t.Context(), storetest.NewEmail(company, func(e *outbox.NewEmail) { e.Idempotency = keyFor("k") }))
			}()
			storetest.WaitBlocked(t, d, 1)
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			err = <-result
			var used *idempotency.UsedError
			if commit != errors.As(err, &used) || !commit && err != nil {
				t.Errorf("the second Accept returned %v", err)
			}
		})
	}
}

func TestIdempotencyKey_PastItsTimeIsFree(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	accepter := d.Store.NewAccepter()
	for i := range 3 {
		e := storetest.NewEmail(company, func(e *outbox.NewEmail) { e.Idempotency = keyFor("k") })
		if err := accepter.Accept(t.Context(), e); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		run(t, d, `UPDATE idempotency_keys SET expires_at = now()`)
		if _, err := d.Store.FindAnswer(t.Context(), company, keyFor("k").Route, "k"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("past its time: %v", err)
		}
	}
}

func TestCleanIdempotencyKeys(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for i := range 5 {
		d.Accept(t, company, func(e *outbox.NewEmail) {
			e.Idempotency = keyFor(fmt.Sprint(i))
			e.Idempotency.Keep = time.Duration(i-3) * time.Hour // -3 h to 1 h
		})
	}
	for _, want := range []int{2, 2, 0} {
		if n, err := d.Store.CleanIdempotencyKeys(t.Context(), 2); n != want || err != nil {
			t.Errorf("cleaned %d, %v; want %d", n, err, want)
		}
	}
	if left := ask[string](t, d, `SELECT string_agg(key, ',') FROM idempotency_keys`); left != "4" {
		t.Errorf("left: %s", left)
	}
}
