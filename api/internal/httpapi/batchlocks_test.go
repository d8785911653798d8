package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/waittest"
)

// A program's open transaction holds the aggregate of one item. The batch waits for it without a connection and is then
// refused; other batches and emails are not delayed, and a company's third batch is refused at once.
func TestBatch_AggregateInAnOpenTransaction(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	other := g.newKey(t, g.Database.Company(t), nil).String()
	tx, err := g.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT email_gateway_take_key($1, 'interview', '42', 'A', $2)`, g.Company, uuid.New()); err != nil {
		t.Fatal(err)
	}
	body := batchBody(emailBody(nil), emailBody(about("42", "A")), emailBody(about("43", "A")))
	replies := make([]reply, 3)
	var group sync.WaitGroup
	for i := range replies {
		group.Go(func() { replies[i] = g.batch(t, "", fmt.Sprint(i), body) })
	}
	ended := make(chan struct{})
	go func() { group.Wait(); close(ended) }()
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		default:
			r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/batch", Key: other, Body: batchBody(emailBody(about("42", "A")))})
			r.batch(t)
			g.accept(t, emailBody(nil))
		}
	}
	var codes []string
	for _, r := range replies {
		if r.Status != http.StatusConflict || r.Header.Get("Retry-After") == "" {
			t.Errorf("%d %s", r.Status, r.Body)
		}
		codes = append(codes, r.problem(t).Code)
	}
	slices.Sort(codes)
	if got := strings.Join(codes, " "); got != "AGGREGATE_BUSY AGGREGATE_IN_PROGRESS AGGREGATE_IN_PROGRESS" {
		t.Error(got)
	}
	var n int
	if err := g.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM idempotency_keys`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d Idempotency-Keys of rejected batches are left (%v)", n, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if b := g.batch(t, "", "0", body).batch(t); b.Accepted != 3 {
		t.Errorf("%+v", b)
	}
}

// Another process holds the Idempotency-Key: the batch waits for a limited time.
func TestBatch_KeyInProgress(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	tx, err := g.SQL.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), `INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
		VALUES ($1, 'POST /v1/email/batch', 'k', sha256('x'), 202, '{}', gen_random_uuid(), now() + interval '1 h')`, g.Company)
	if err != nil {
		t.Fatal(err)
	}
	r := g.batch(t, "", "k", batchBody(emailBody(nil)))
	if r.Status != http.StatusConflict || r.problem(t).Code != "IDEMPOTENCY_IN_PROGRESS" || r.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	g.batch(t, "", "k", batchBody(emailBody(nil))).batch(t)
	g.Run(t, `UPDATE idempotency_keys SET expires_at = now()`)
	if b := g.batch(t, "", "k", batchBody(emailBody(nil), emailBody(nil))).batch(t); b.Accepted != 2 {
		t.Errorf("the batch with an expired key: %+v", b)
	}
}

// The response to the COMMIT is lost: the batch is looked up, and is stored as a whole or not at all.
func TestBatch_LostAnswers(t *testing.T) {
	t.Parallel()
	g, w := startBehind(t)
	g.do(t, call{Path: "/v1/emails"})
	body := batchBody(emailBody(with("subject", "lost on the wire")), emailBody(about("1", "A")))
	for i, key := range []string{"", "k"} {
		for _, times := range []int{1, 2, 8} {
			g.Run(t, `TRUNCATE email_outbox, outbox_aggregates, idempotency_keys`)
			w.LoseAnswers("COMMIT", times)
			if key != "" {
				key = fmt.Sprint("k", times)
			}
			r := g.batch(t, "", key, body)
			lost := times - w.LoseAnswers("", 0)
			var emails int
			if err := g.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM email_outbox`).Scan(&emails); err != nil {
				t.Fatal(err)
			}
			t.Logf("key %q, %d lost: %d, %d emails", key, lost, r.Status, emails)
			if lost == 0 {
				t.Error("the proxy dropped no response")
			}
			switch {
			case r.Status == http.StatusAccepted && emails == 2:
				if b := r.batch(t); b.Accepted != 2 || !g.exists(t, b.Emails[0].OutboxID) || r.Header.Get("Idempotent-Replayed") != "" {
					t.Errorf("%s", r.Body)
				}
			case r.Status == http.StatusServiceUnavailable && r.problem(t).Code == "ACCEPT_UNKNOWN" && emails != 1:
				detail := r.problem(t).Detail
				if id, err := uuid.Parse(detail[strings.LastIndexByte(detail, ' ')+1:]); err != nil || g.exists(t, id.String()) != (emails == 2) {
					t.Errorf("%s", r.Body)
				}
			default:
				t.Errorf("try %d: %d emails, %d %s", i, emails, r.Status, r.Body)
			}
			if key == "" {
				continue
			}
			again := g.batch(t, "", key, body)
			if b := again.batch(t); b.Accepted != 2 {
				t.Errorf("again: %s", again.Body)
			}
		}
	}
}

// One company sends large batches without pause. Another company's single sends do not wait for them.
func TestBatch_DelaysNoOtherCompany(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	quiet := g.newKey(t, g.Database.Company(t), nil).String()
	many := make([]string, 500)
	for i := range many {
		many[i] = emailBody(with("html", "<p>"+strings.Repeat("Olá, Ana. ", 1700)+"</p>")) // 9 MiB together
	}
	small, large := batchBody(slices.Repeat([]string{emailBody(nil)}, 500)...), batchBody(many...)

	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for i := range 12 {
		body := small
		if i%3 == 0 {
			body = large
		}
		group.Go(func() {
			for ctx.Err() == nil {
				r, err := g.try(t, call{Method: http.MethodPost, Path: "/v1/email/batch", Body: body, Context: ctx})
				mu.Lock()
				switch {
				case err != nil:
				case r.Status == http.StatusAccepted:
					accepted++
				case r.Status != http.StatusTooManyRequests:
					t.Errorf("%d %s", r.Status, r.Body)
				}
				mu.Unlock()
			}
		})
	}
	batches := func() int { mu.Lock(); defer mu.Unlock(); return accepted }
	waittest.Until(t, "the first batches run", func() bool { return batches() >= 2 })
	before := batches()
	const singles = 40
	for range singles {
		if r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Key: quiet, Body: emailBody(nil)}); r.Status != http.StatusAccepted {
			t.Errorf("%d %s", r.Status, r.Body)
		}
	}
	during := batches() - before
	stop()
	group.Wait()
	t.Logf("%d batches were accepted during %d single sends", during, singles)
	if during > 2*singles { // a send that waits for the batches before it would wait for more
		t.Errorf("%d batches were accepted during %d single sends", during, singles)
	}
}
