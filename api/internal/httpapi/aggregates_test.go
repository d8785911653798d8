package httpapi_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
)

// about adds an aggregate, an interview, to an email.
func about(id, eventType string) func(fields) {
	return with("aggregate", fields{"type": "interview", "id": id, "eventType": eventType})
}

// A second email of the same aggregate and event type returns the first one, whatever it contains.
// Other event types, aggregates and companies are independent.
func TestAggregate_IsAcceptedOnce(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	first := g.send(t, emailBody(about("42", "REMINDER_24H")))
	id := first.json(t)["outboxId"]
	again := g.send(t, emailBody(func(f fields) {
		about("42", "REMINDER_24H")(f)
		f["subject"] = "outra coisa"
	}))
	if again.Status != http.StatusAccepted || again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("Location") != first.Header.Get("Location") ||
		again.Body != first.Body {
		t.Errorf("%d %v %s, the first was %s", again.Status, again.Header, again.Body, first.Body)
	}
	stranger := g.newKey(t, g.Database.Company(t), nil).String()
	others := []string{
		g.accept(t, emailBody(about("42", "REMINDER_1H"))),
		g.accept(t, emailBody(about("43", "REMINDER_24H"))),
		g.accept(t, emailBody(with("aggregate", fields{"type": "task", "id": "42", "eventType": "REMINDER_24H"}))),
		g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Key: stranger, Body: emailBody(about("42", "REMINDER_24H"))}).json(t)["outboxId"].(string),
	}
	for i, other := range others {
		if other == id {
			t.Errorf("request %d returned the first email", i)
		}
	}
	want := map[string]any{"type": "interview", "id": "42", "eventType": "REMINDER_24H"}
	if diff := cmp.Diff(want, g.show(t, id.(string))["aggregate"]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if plain := g.show(t, g.accept(t, emailBody(nil))); plain["aggregate"] != nil {
		t.Errorf("an email without an aggregate shows %v", plain["aggregate"])
	}
}

// Concurrent requests create one email, and each gets its id.
func TestAggregate_AtTheSameTime(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	ids := make([]string, 16)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			waittest.Until(t, "there is a free slot for another request", func() bool { // slots per company are limited
				r := g.send(t, emailBody(about("42", "REMINDER_24H")))
				if r.Status == http.StatusTooManyRequests {
					return false
				}
				ids[i], _ = r.json(t)["outboxId"].(string)
				return true
			})
		})
	}
	group.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("%v", ids)
		}
	}
}

// A request waits only for a limited time for an open transaction of a program that writes the
// same email, and other emails are not delayed.
func TestAggregate_InAnOpenTransaction(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	tx, err := g.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT email_gateway_take_key($1, 'interview', '42', 'REMINDER_24H', $2)`, g.Company, uuid.New()); err != nil {
		t.Fatal(err)
	}
	done := make(chan reply)
	go func() { done <- g.send(t, emailBody(about("42", "REMINDER_24H"))) }()
	g.accept(t, emailBody(about("43", "REMINDER_24H")))
	g.accept(t, emailBody(nil))
	r := <-done
	if r.Status != http.StatusConflict || r.problem(t).Code != "AGGREGATE_IN_PROGRESS" || r.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	g.accept(t, emailBody(about("42", "REMINDER_24H")))
}

// The same applies to an email that such a transaction reschedules or cancels.
func TestAggregate_HeldByAProgram(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(about("42", "REMINDER_24H")))
	tx, err := g.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT email_gateway_cancel($1, 'interview', '42')`, g.Company); err != nil {
		t.Fatal(err)
	}
	steps := []func() reply{
		func() reply { return g.reschedule(t, id, sendAt(time.Now().Add(time.Hour))) },
		func() reply { return g.step(t, id, "cancel") },
		func() reply {
			return g.do(t, call{Method: http.MethodPost, Path: "/v1/aggregates/interview/42/cancel"})
		},
		func() reply {
			r := g.send(t, emailBody(about("42", "REMINDER_24H")))
			if r.Status == http.StatusAccepted { // once the email is cancelled
				r.Status = http.StatusOK
			}
			return r
		},
	}
	var group sync.WaitGroup
	for i, step := range steps {
		group.Go(func() {
			r := step()
			code := r.problem(t).Code // two of those that need the email's row wait
			if r.Status != http.StatusConflict || code != "AGGREGATE_IN_PROGRESS" && code != "AGGREGATE_BUSY" || r.Header.Get("Retry-After") == "" {
				t.Errorf("%d: %d %s", i, r.Status, r.Body)
			}
		})
	}
	group.Wait()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for i, step := range steps {
		if r := step(); r.Status != http.StatusOK {
			t.Errorf("%d: %d %s", i, r.Status, r.Body)
		}
	}
}

// A cancel that waits for a transaction in which a program replaces the email cancels the email that replaced it.
func TestAggregate_CancelBehindAReplacement(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	first := g.accept(t, emailBody(about("42", "REMINDER_24H")))
	tx, err := g.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var second string
	if _, err := tx.ExecContext(t.Context(), `SELECT email_gateway_cancel($1, 'interview', '42')`, g.Company); err != nil {
		t.Fatal(err)
	}
	err = tx.QueryRowContext(t.Context(), `SELECT outbox_id FROM email_gateway_enqueue($1, 'interview', '42', 'REMINDER_24H', $2)`, g.Company,
		`{"to": "ana@example.com", "subject": "Entrevista", "html": "<p>Olá</p>", "recipient": {"externalId": "CAND-42"}}`).Scan(&second)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan reply)
	go func() { done <- g.do(t, call{Method: http.MethodPost, Path: "/v1/aggregates/interview/42/cancel"}) }()
	storetest.WaitBlocked(t, g.Database, 1)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"type": "interview", "id": "42", "emails": []any{
		map[string]any{"outboxId": second, "eventType": "REMINDER_24H", "status": "CANCELLED", "cancelled": true},
	}}
	if r := <-done; r.Status != http.StatusOK || !cmp.Equal(r.json(t), want) {
		t.Errorf("%d (-want +got)\n%s", r.Status, cmp.Diff(want, r.json(t)))
	}
	for _, id := range []string{first, second} {
		if got := g.show(t, id)["status"]; got != "CANCELLED" {
			t.Errorf("%s is %v", id, got)
		}
	}
}

// A cancelled email cannot be retried after another one replaced it.
func TestAggregate_RetryOfTheReplaced(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	first := g.accept(t, emailBody(about("42", "REMINDER_24H")))
	g.step(t, first, "cancel")
	second := g.accept(t, emailBody(about("42", "REMINDER_24H")))
	if r := g.step(t, first, "retry"); r.Status != http.StatusConflict || r.problem(t).Code != "NOT_REPLAYABLE" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	g.step(t, second, "cancel")
	if r := g.step(t, second, "retry"); r.Status != http.StatusAccepted {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// With an Idempotency-Key and an aggregate, the same request gets the same response, also after the
// email was cancelled and replaced.
func TestAggregate_BesideAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	request := func() reply {
		return g.do(t, call{
			Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(about("42", "REMINDER_24H")), Header: map[string]string{"Idempotency-Key": "k-1"},
		})
	}
	first := request()
	id, _ := first.json(t)["outboxId"].(string)
	if again := request(); again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s, the first was %s", again.Body, first.Body)
	}
	g.step(t, id, "cancel")
	if again := request(); again.Body != first.Body {
		t.Errorf("after the cancel: %d %s", again.Status, again.Body)
	}
	if next := g.accept(t, emailBody(about("42", "REMINDER_24H"))); next == id {
		t.Error("a cancelled email still blocks its aggregate and event type")
	}
	if again := request(); again.Body != first.Body {
		t.Errorf("after the next one: %d %s", again.Status, again.Body)
	}
}

// A cancelled email can be replaced; one in any other final status cannot.
func TestAggregate_AfterTheEnd(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	failed := g.accept(t, emailBody(about("42", "FAILED")))
	g.Programs.giveUp(t, failed)
	again := g.send(t, emailBody(about("42", "FAILED")))
	if answer := again.json(t); answer["outboxId"] != failed || answer["status"] != "FAILED" || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s", again.Body)
	}
	g.Run(t, `DELETE FROM email_outbox WHERE id = $1`, failed) // the email is purged, its log is kept
	if answer := g.send(t, emailBody(about("42", "FAILED"))).json(t); answer["outboxId"] != failed || answer["status"] != "FAILED" {
		t.Errorf("after the purge: %v", answer)
	}
	if shown := g.show(t, failed); shown["aggregate"] == nil {
		t.Error("after the purge, the email is shown without its aggregate")
	}
	var turns []string
	for range 3 {
		id := g.accept(t, emailBody(about("42", "CANCELLED")))
		turns = append([]string{id}, turns...)
		g.step(t, id, "cancel")
	}
	if ids, _ := g.page(t, "aggregateType=interview&aggregateId=42&eventType=CANCELLED"); !cmp.Equal(ids, turns) {
		t.Errorf("listed %v, want %v", ids, turns)
	}
}

func TestAggregate_Lists(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	day := g.accept(t, emailBody(about("42", "REMINDER_24H")))
	hour := g.accept(t, emailBody(func(f fields) {
		about("42", "REMINDER_1H")(f)
		f["to"], f["recipient"] = "eva@example.com", fields{"externalId": "C-2", "email": "eva@example.com"}
	}))
	g.accept(t, emailBody(about("43", "REMINDER_24H")))
	g.accept(t, emailBody(nil))
	g.Programs.giveUp(t, hour)
	for query, want := range map[string][]string{
		"aggregateType=interview&aggregateId=42":                                   {hour, day},
		"aggregateType=interview&aggregateId=42&eventType=REMINDER_24H":            {day},
		"aggregateType=interview&aggregateId=42&status=FAILED":                     {hour},
		"aggregateType=interview&aggregateId=42&recipient=eva@example.com":         {hour},
		"aggregateType=interview&aggregateId=42&externalId=CUST-1":                 {day},
		"aggregateType=interview&aggregateId=42&requestId=nobodys":                 nil,
		"aggregateType=task&aggregateId=42":                                        nil,
		"aggregateType=interview&aggregateId=42&createdAfter=2999-01-01T00:00:00Z": nil,
	} {
		if got, _ := g.page(t, query); !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	ids, next := g.page(t, "aggregateType=interview&aggregateId=42&limit=1")
	if rest, _ := g.page(t, "aggregateType=interview&aggregateId=42&limit=1&cursor="+next); !cmp.Equal(append(ids, rest...), []string{hour, day}) {
		t.Errorf("page by page: %v, %v", ids, rest)
	}
	for query, field := range map[string]string{
		"aggregateType=interview": "aggregateId", "aggregateId=42": "aggregateType", "eventType=X": "aggregateId",
		"aggregateType=a%20b&aggregateId=42": "aggregateType",
	} {
		r := g.do(t, call{Path: "/v1/emails?" + query})
		if p := r.problem(t); r.Status != http.StatusUnprocessableEntity || p.Errors[0].Field != field {
			t.Errorf("%s: %d %s", query, r.Status, r.Body)
		}
	}
}

// Emails that a worker is processing are reported and not changed; the others are cancelled once.
func TestAggregate_Cancel(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	waiting := g.accept(t, emailBody(about("42", "A")))
	inWork := g.accept(t, emailBody(about("42", "B")))
	ended := g.accept(t, emailBody(about("42", "C")))
	other := g.accept(t, emailBody(about("43", "A")))
	g.Programs.claim(t, inWork)
	g.Programs.giveUp(t, ended)
	cancel := func(path string) reply {
		return g.do(t, call{Method: http.MethodPost, Path: "/v1/aggregates/" + path + "/cancel"})
	}
	want := map[string]any{"type": "interview", "id": "42", "emails": []any{
		map[string]any{"outboxId": waiting, "eventType": "A", "status": "CANCELLED", "cancelled": true},
		map[string]any{"outboxId": inWork, "eventType": "B", "status": "PROCESSING", "cancelled": false},
		map[string]any{"outboxId": ended, "eventType": "C", "status": "FAILED", "cancelled": false},
	}}
	for range 2 {
		r := cancel("interview/42")
		if diff := cmp.Diff(want, r.json(t)); r.Status != http.StatusOK || diff != "" {
			t.Errorf("%d (-want +got)\n%s", r.Status, diff)
		}
	}
	details := g.show(t, waiting)
	if got := types(details); !cmp.Equal(got, []string{"CANCELLED"}) {
		t.Errorf("timeline %v", got)
	}
	if untouched := g.show(t, other); untouched["status"] != "PENDING" {
		t.Errorf("the other interview's is %v", untouched["status"])
	}
	for _, path := range []string{"interview/44", "task/42", "interview/..%2F", "interview/%00", "a%20b/42"} {
		if r := cancel(path); r.Status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
	}
}

// fillAggregate adds so many emails in a final status to an aggregate, with event types from first on, and returns the first.
func fillAggregate(t *testing.T, g *gateway, id, first string, status email.Status, n int) string {
	t.Helper()
	sent := g.accept(t, emailBody(about(id, first)))
	g.Run(t, `UPDATE email_outbox SET status = $2, processed_at = now() WHERE id = $1`, sent, status)
	g.Run(t, `INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at, status, processed_at)
		SELECT overlay(id::text placing lpad(to_hex(n), 12, '0') from 25)::uuid, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at,
		       status, processed_at
		FROM email_outbox, generate_series(1, $2) n WHERE id = $1`, sent, n-1)
	g.Run(t, `INSERT INTO outbox_aggregates (company_id, aggregate_type, aggregate_id, event_type, outbox_id)
		SELECT $1, 'interview', $2, $3 || '-' || n, overlay($4::text placing lpad(to_hex(n), 12, '0') from 25)::uuid FROM generate_series(1, $5) n`,
		g.Company, id, first, sent, n-1)
	return sent
}

// An aggregate with more event types than one transaction changes is refused as a whole.
func TestAggregate_TooLarge(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	waiting := g.accept(t, emailBody(about("42", "Z")))
	fillAggregate(t, g, "42", "A", email.Sent, outbox.MaxAggregateEmails)
	cancel := func() reply {
		return g.do(t, call{Method: http.MethodPost, Path: "/v1/aggregates/interview/42/cancel"})
	}
	if r := cancel(); r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "AGGREGATE_TOO_LARGE" || !strings.Contains(r.problem(t).Detail, "eventType") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if status := g.show(t, waiting)["status"]; status != "PENDING" {
		t.Errorf("an email of the aggregate is %v", status)
	}
	g.Run(t, `DELETE FROM outbox_aggregates WHERE event_type = 'A-1'`)
	if r := cancel(); r.Status != http.StatusOK || strings.Count(r.Body, `"cancelled":true`) != 1 {
		t.Errorf("%d %.300s", r.Status, r.Body)
	}
}

// A cancel locks the emails in the order of their ids, as the transactions of programs do, also if there are more than one
// statement changes. It does not wait for an email that is sent.
func TestAggregate_CancelInOrder(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	oldest := g.accept(t, emailBody(about("42", "999")))
	sent := fillAggregate(t, g, "42", "000", email.Sent, 1)
	fillAggregate(t, g, "42", "002", email.Failed, 300) // a request may retry them, so they are locked too
	newest := g.accept(t, emailBody(about("42", "001")))
	defer g.hold(t, `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, sent)()
	release := g.hold(t, `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, oldest)
	done := make(chan reply)
	go func() {
		done <- g.do(t, call{Method: http.MethodPost, Path: "/v1/aggregates/interview/42/cancel"})
	}()
	storetest.WaitBlocked(t, g.Database, 1)
	if storetest.Ask[int](t, g.Database, `SELECT count(*) FROM (SELECT FROM email_outbox WHERE id = $1 FOR UPDATE SKIP LOCKED) free`, newest) != 1 {
		t.Error("the newest email is locked before the oldest")
	}
	release()
	if r := <-done; r.Status != http.StatusOK || strings.Count(r.Body, `"cancelled":true`) != 2 {
		t.Errorf("%d %.300s", r.Status, r.Body)
	}
}
