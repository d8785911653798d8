package store_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// outboxRow is what the tests look at of email_outbox.
type outboxRow struct {
	Queue, RequestID, Sender, HTML, Status, Delivery string
	Text, LastError                                  sql.NullString
	CPFCNPJ, HTMLSHA256, Payload                     []byte
	Priority, Checker, Attempts, Throttles           int
	NextIn, ExpiresIn                                time.Duration // from now on
	Final, Leased, OutcomeUnknown, Duplicate         bool
}

func readOutbox(tb testing.TB, d storetest.Database, id uuid.UUID) outboxRow {
	tb.Helper()
	var r outboxRow
	var next, expires float64
	err := d.SQL.QueryRowContext(tb.Context(), `
		SELECT l.queue, request_id, sender, html, status, delivery, text_body, last_error, cpf_cnpj_enc, html_sha256, payload, priority, checker_version,
		       attempts, throttles, extract(epoch FROM next_at - now()), extract(epoch FROM expires_at - now()),
		       processed_at IS NOT NULL, lease_until IS NOT NULL, outcome_unknown, possible_duplicate
		FROM email_outbox o LEFT JOIN dispatch_lanes l ON l.id = o.lane_id WHERE o.id = $1`, id).Scan(
		&r.Queue, &r.RequestID, &r.Sender, &r.HTML, &r.Status, &r.Delivery, &r.Text, &r.LastError, &r.CPFCNPJ, &r.HTMLSHA256, &r.Payload, &r.Priority, &r.Checker,
		&r.Attempts, &r.Throttles, &next, &expires, &r.Final, &r.Leased, &r.OutcomeUnknown, &r.Duplicate)
	if err != nil {
		tb.Fatalf("read outbox row: %v", err)
	}
	r.NextIn, r.ExpiresIn = time.Duration(next*1e9), time.Duration(expires*1e9)
	return r
}

// about compares times that were taken a moment apart.
func about(got, want time.Duration) bool {
	return got > want-10*time.Second && got < want+10*time.Second
}

func TestAccept_KeepsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for name, change := range map[string]func(*outbox.NewEmail){
		"least": nil,
		"most": func(e *outbox.NewEmail) {
			e.Text, e.CPFCNPJ, e.Priority, e.Delivery = "Olá", []byte{0, 1, 0xff, '\\', '"'}, 1, email.AtMostOnce
			e.Job.Tags, e.Job.Headers = []string{"a", `"b"\`, "{c,d}", "NULL", ""}, map[string]string{"X-A": "b"}
		},
		"low":    func(e *outbox.NewEmail) { e.Priority = 10 },
		"quotes": func(e *outbox.NewEmail) { e.HTML = `<p title="a\"b">{\},NULL,''</p>` + "\r\n\t\u2028𝄞" },
		"large": func(e *outbox.NewEmail) {
			e.HTML, e.Text = strings.Repeat("ção ", 512<<8), strings.Repeat("x", 512<<10)
		},
		"not NULL text": func(e *outbox.NewEmail) { e.Text = "NULL" },
	} {
		e := storetest.NewEmail(company, change)
		if err := d.Store.NewAccepter().Accept(t.Context(), e); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := readOutbox(t, d, e.ID)
		var job email.SendJob
		if err := json.Unmarshal(got.Payload, &job); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e.Job, job); diff != "" {
			t.Errorf("%s: payload %s", name, diff)
		}
		if !about(got.NextIn, 0) || !about(got.ExpiresIn, 24*time.Hour) {
			t.Errorf("%s: due in %s, expires in %s", name, got.NextIn, got.ExpiresIn)
		}
		got.NextIn, got.ExpiresIn, got.Payload = 0, 0, nil
		want := outboxRow{
			Queue: email.QueueFor(e.Priority), RequestID: e.RequestID, Sender: e.Sender, HTML: e.HTML, Status: "PENDING", Delivery: string(e.Delivery),
			Text: sql.NullString{String: e.Text, Valid: e.Text != ""}, CPFCNPJ: e.CPFCNPJ, HTMLSHA256: e.HTMLSHA256,
			Priority: e.Priority, Checker: e.CheckerVersion,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestAccept_SendAt(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for _, wait := range []time.Duration{-time.Hour, 0, time.Hour, 300 * 24 * time.Hour} {
		got := readOutbox(t, d, d.Accept(t, company, func(e *outbox.NewEmail) { e.SendAt = time.Now().Add(wait) }))
		if want := max(wait, 0); !about(got.NextIn, want) || !about(got.ExpiresIn, want+24*time.Hour) {
			t.Errorf("sendAt in %s: due in %s, expires in %s", wait, got.NextIn, got.ExpiresIn)
		}
	}
}

// An email without a lane, which no dispatcher would take, is not accepted, and its key stays free.
func TestAccept_WithoutALane(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	run(t, d, `DELETE FROM dispatch_lanes WHERE queue = 'email:send:low'`)
	accepter := d.Store.NewAccepter()
	low := func(e *outbox.NewEmail) { e.Priority = 9 }
	keyed := func(e *outbox.NewEmail) { e.Priority, e.Idempotency = 9, keyFor("k") }
	for _, e := range []outbox.NewEmail{
		storetest.NewEmail(company, low), storetest.NewEmail(company, keyed), storetest.NewEmail(uuid.New(), nil),
	} {
		if err := accepter.Accept(t.Context(), e); !errors.Is(err, lane.ErrNone) {
			t.Errorf("got %v, want ErrNoLane", err)
		}
	}
	if n := ask[int](t, d, `SELECT (SELECT count(*) FROM email_outbox) + (SELECT count(*) FROM idempotency_keys)`); n != 0 {
		t.Errorf("%d rows are stored, want none", n)
	}
	e := storetest.NewEmail(company, func(e *outbox.NewEmail) { e.Idempotency = keyFor("k") })
	if err := accepter.Accept(t.Context(), e); err != nil {
		t.Errorf("the key in another request: %v", err)
	}
}

// Concurrent callers share commits, and an invalid row among them fails alone.
func TestAccept_ManyAtOnceAndOneOfThemBad(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	accepter := d.Store.NewAccepter()
	const n, bad = 500, 123
	ids := make([]uuid.UUID, n)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		e := storetest.NewEmail(company, func(e *outbox.NewEmail) {
			if i == bad {
				e.HTML = "a\x00b" // Postgres cannot store U+0000
			}
		})
		ids[i] = e.ID
		wg.Go(func() {
			<-start
			if err := accepter.Accept(t.Context(), e); (err != nil) != (i == bad) {
				t.Errorf("email %d: %v", i, err)
			}
		})
	}
	close(start)
	wg.Wait()
	accepter.Close()
	if stood := ask[int](t, d, `SELECT count(*) FROM email_outbox`); stood != n-1 {
		t.Errorf("%d rows are stored, want %d", stood, n-1)
	}
	if commits := ask[int](t, d, `SELECT count(DISTINCT xmin::text) FROM email_outbox`); commits > n/2 {
		t.Errorf("%d commits for %d emails", commits, n)
	}
	if exists, err := d.Store.Exists(t.Context(), ids[bad]); exists || err != nil {
		t.Errorf("Exists of the invalid email = %v, %v, want false", exists, err)
	}
}

// Accepting is repeatable: the same email is one row, however often it is accepted.
func TestAccept_TheSameAgain(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	accepter := d.Store.NewAccepter()
	for _, key := range []*idempotency.Key{nil, keyFor("k")} {
		e := storetest.NewEmail(d.Company(t), func(e *outbox.NewEmail) { e.Idempotency = key })
		for range 3 {
			if err := accepter.Accept(t.Context(), e); err != nil {
				t.Error(err)
			}
		}
		if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE id = $1`, e.ID); n != 1 {
			t.Errorf("%d rows", n)
		}
	}
}

func TestExists(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := d.Accept(t, d.Company(t), nil)
	for asked, want := range map[uuid.UUID]bool{id: true, uuid.New(): false} {
		if got, err := d.Store.Exists(t.Context(), asked); got != want || err != nil {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
}

func keyFor(key string) *idempotency.Key {
	return &idempotency.Key{
		Route: "POST /v1/email/send", Key: key, BodySHA256: bytes.Repeat([]byte{7}, 32), Status: 202,
		Answer: []byte(`{"outboxId":"x"}`), Keep: 72 * time.Hour,
	}
}

// Another session is inserting the idempotency key of one email of a group. The others are accepted without waiting for it, and
// that one after it has ended.
func TestAccept_AKeyThatIsBeingInserted(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	accepter := d.Store.NewAccepter()
	keyed := storetest.NewEmail(company, func(e *outbox.NewEmail) { e.Idempotency = keyFor("k") })
	release := lock(t, d, `INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
		VALUES ($1, $2, 'k', sha256(''), 202, '', $3, now() + interval '1 h')`, company, keyed.Idempotency.Route, uuid.New())
	ended := make(chan error, 1)
	go func() {
		err := idempotency.ErrInProgress
		for errors.Is(err, idempotency.ErrInProgress) { // as it does after a while
			err = accepter.Accept(t.Context(), keyed)
		}
		ended <- err
	}()
	for range 5 {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := accepter.Accept(t.Context(), storetest.NewEmail(other, nil)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	select {
	case err := <-ended:
		t.Errorf("accepted with %v while another transaction is inserting its key", err)
	default:
	}
	release()
	if err := <-ended; err != nil {
		t.Errorf("when the other transaction has ended: %v", err)
	}

	// If that transaction does not end, Accept returns an error.
	again := storetest.NewEmail(company, func(e *outbox.NewEmail) { e.Idempotency = keyFor("k2") })
	lock(t, d, `INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
		VALUES ($1, $2, 'k2', sha256(''), 202, '', $3, now() + interval '1 h')`, company, keyed.Idempotency.Route, uuid.New())
	if err := accepter.Accept(t.Context(), again); !errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("while another transaction is inserting its key: %v", err)
	}
}
