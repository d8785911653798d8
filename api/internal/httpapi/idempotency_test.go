package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
)

// keyed posts an email with an Idempotency-Key.
func (g *gateway) keyed(tb testing.TB, key, body string) reply {
	tb.Helper()
	return g.do(tb, call{Method: http.MethodPost, Path: "/v1/email/send", Body: body, Header: map[string]string{"Idempotency-Key": key}})
}

func TestIdempotency_FiftyAtOnce(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	// Fill the key cache, so that all fifty arrive together.
	g.do(t, call{Path: "/v1/emails"})
	replies := make([]reply, 50)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() {
			<-begin
			replies[i] = g.keyed(t, "order-1", emailBody(nil))
		})
	}
	close(begin)
	all.Wait()
	firsts := 0
	for _, r := range replies {
		if r.Status != http.StatusAccepted || r.Body != replies[0].Body || r.Header.Get("Location") != replies[0].Header.Get("Location") {
			t.Errorf("%d %s, want %s", r.Status, r.Body, replies[0].Body)
		}
		if r.Header.Get("Idempotent-Replayed") == "" {
			firsts++
		}
	}
	if n := g.rows(t); n != 2 || firsts != 1 {
		t.Errorf("%d rows (want one email and one key), %d first answers", n, firsts)
	}
}

func TestIdempotency_SameMeaningIsReplayed(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	first := g.keyed(t, "k", emailBody(nil))
	for _, body := range []string{
		emailBody(nil),
		strings.ReplaceAll(emailBody(nil), `,"`, " ,\n\""),
		`{"recipient":{"email":"ana@example.com","externalId":"CUST-1"},"subject":"\u0053ua fatura","to":"ana@example.com","html":"<p>Olá, Ana.<\/p>"}`,
	} {
		r := g.keyed(t, "k", body)
		if r.Status != first.Status || r.Body != first.Body || r.Header.Get("Idempotent-Replayed") != "true" ||
			r.Header.Get("Location") != first.Header.Get("Location") {
			t.Errorf("%d %v %s", r.Status, r.Header, r.Body)
		}
	}
	for _, body := range []string{emailBody(with("subject", "Outra")), emailBody(with("priority", 5))} {
		if r := g.keyed(t, "k", body); r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "IDEMPOTENCY_KEY_REUSED" {
			t.Errorf("%d %s", r.Status, r.Body)
		}
	}
	if n := g.rows(t); n != 2 {
		t.Errorf("%d rows", n)
	}
}

func TestIdempotency_KeysBelongToTheCompany(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	other := g.newKey(t, g.Database.Company(t), nil)
	mine := g.keyed(t, "k", emailBody(nil))
	theirs := g.do(t, call{
		Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil), Key: other.String(),
		Header: map[string]string{"Idempotency-Key": "k"},
	})
	if theirs.Status != http.StatusAccepted || theirs.Body == mine.Body {
		t.Errorf("%d %s", theirs.Status, theirs.Body)
	}
}

// A rejected request does not use up its key; an accepted one is replayed even if it would be rejected
// now.
func TestIdempotency_AndRefusals(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	if r := g.keyed(t, "k", emailBody(with("subject", ""))); r.Status != http.StatusUnprocessableEntity {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	person := g.recipient(t, g.Company, "ana@example.com")
	body := emailBody(with("recipient", fields{"recipientId": person, "email": "ana@example.com"}))
	first := g.keyed(t, "k", body)
	if first.Status != http.StatusAccepted || first.Header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("a rejected request has reserved the key: %d %s", first.Status, first.Body)
	}
	g.Run(t, `UPDATE recipients SET deleted_at = now()`)
	if r := g.keyed(t, "k", body); r.Status != http.StatusAccepted || r.Body != first.Body {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.keyed(t, "k", emailBody(with("subject", ""))); r.problem(t).Code != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.keyed(t, "other", body); r.problem(t).Code != "RECIPIENT_NOT_FOUND" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

func TestIdempotency_KeyIsFreeAfterItsTime(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	first := g.keyed(t, "k", emailBody(nil))
	var hours float64
	if err := g.SQL.QueryRowContext(t.Context(), `SELECT extract(epoch FROM expires_at - now()) / 3600 FROM idempotency_keys`).Scan(&hours); err != nil {
		t.Fatal(err)
	}
	if hours < 71.9 || hours > 72 {
		t.Errorf("the key expires after %v hours", hours)
	}
	g.Run(t, `UPDATE idempotency_keys SET expires_at = now()`)
	second := g.keyed(t, "k", emailBody(with("subject", "Outra")))
	if second.Status != http.StatusAccepted || second.Body == first.Body {
		t.Errorf("%d %s", second.Status, second.Body)
	}
}

// A concurrent request in another process holds the key: wait for it, but not forever.
func TestIdempotency_ConcurrentRequestHoldsTheKey(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	hold := func() interface{ Rollback() error } {
		tx, err := g.SQL.BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.ExecContext(t.Context(), `INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
			VALUES ($1, 'POST /v1/email/send', 'k', sha256('x'), 202, '{}', gen_random_uuid(), now() + interval '1 h')`, g.Company)
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	holder := hold()
	r := g.keyed(t, "k", emailBody(nil))
	if r.Status != http.StatusConflict || r.problem(t).Code != "IDEMPOTENCY_IN_PROGRESS" || r.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	// The insert continued to wait and has succeeded; the repetition gets its response.
	again := g.keyed(t, "k", emailBody(nil))
	if again.Status != http.StatusAccepted {
		t.Errorf("%d %s", again.Status, again.Body)
	}
	if n := g.rows(t); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// accepterFunc simulates database states that are hard to provoke.
type accepterFunc func(context.Context, outbox.NewEmail) error

func (f accepterFunc) Accept(ctx context.Context, e outbox.NewEmail) error { return f(ctx, e) }

func TestSend_PanicIsAnswered(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) {
		p.Accepter = accepterFunc(func(context.Context, outbox.NewEmail) error { panic("row of ana@example.com") })
	})
	r := g.send(t, emailBody(nil))
	if r.Status != http.StatusInternalServerError || r.problem(t).Code != "INTERNAL" || strings.Contains(r.Body, "ana") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if log := g.Log.String(); !strings.Contains(log, "idempotency_test.go") || strings.Contains(log, "ana@example.com") {
		t.Errorf("no stack, or an address: %s", log)
	}
}

func TestSend_UnexpectedErrorIsHidden(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) {
		p.Accepter = accepterFunc(func(context.Context, outbox.NewEmail) error { return lane.ErrNone })
	})
	r := g.send(t, emailBody(nil))
	if r.Status != http.StatusInternalServerError || strings.Contains(r.Body, "lane") || !strings.Contains(g.Log.String(), "lane") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}
