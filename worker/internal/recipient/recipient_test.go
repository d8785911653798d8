package recipient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	recipientstore "email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/dbcheck"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/recipient"
)

// bench is an Upserter on its own database.
type bench struct {
	storetest.Database
	company  uuid.UUID
	upserter *recipient.Upserter
	registry *prometheus.Registry
	log      *bytes.Buffer
}

func newBench(t *testing.T, change func(*recipient.Params)) *bench {
	t.Helper()
	d := storetest.New(t)
	b := &bench{Database: d, company: d.Company(t), registry: prometheus.NewRegistry(), log: &bytes.Buffer{}}
	p := recipient.Params{
		Log: slog.New(slog.NewTextHandler(b.log, nil)), Store: d.Store, Database: dbcheck.New(slog.New(slog.DiscardHandler), d.Store.Confirm), Metrics: recipient.NewMetrics(b.registry),
		Concurrency: 8, RetryDelay: 10 * time.Second,
	}
	if change != nil {
		change(&p)
	}
	b.upserter = recipient.New(p)
	return b
}

// accept accepts people and returns their tasks, as the dispatcher would publish them.
func (b *bench) accept(t *testing.T, names ...string) []queue.Task {
	t.Helper()
	n := recipientstore.NewRecipients{CompanyID: b.company, RequestID: "req-1", CreatedAt: time.Now()}
	tasks := make([]queue.Task, len(names))
	for i, name := range names {
		r := recipientstore.NewRecipient{OutboxID: uuid.Must(uuid.NewV7())}
		r.ExternalID, r.Nome, r.Email = fmt.Sprint("C-", i), name, fmt.Sprintf("secret%d@example.com", i)
		r.ID = recipientstore.ID(b.company, r.ExternalID, "", r.Email)
		n.Recipients = append(n.Recipients, r)
		tasks[i] = taskOf(r.OutboxID)
	}
	if err := b.Store.AcceptRecipients(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now() WHERE status = 'PENDING'`)
	return tasks
}

func taskOf(id uuid.UUID) queue.Task {
	return queue.Task{ID: id.String(), Queue: email.QueueRecipients, Payload: fmt.Appendf(nil, `{"outboxId":%q}`, id)}
}

func (b *bench) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := b.SQL.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// state counts recipients, open imports and dead letters.
func (b *bench) state(t *testing.T) string {
	t.Helper()
	var text string
	err := b.SQL.QueryRowContext(t.Context(), `SELECT format('%s written, %s waiting, %s dead',
		(SELECT count(*) FROM recipients), (SELECT count(*) FROM recipient_intakes), (SELECT count(*) FROM dead_letters))`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// counts checks the counters.
func (b *bench) counts(t *testing.T, want string) {
	t.Helper()
	var text strings.Builder
	for _, name := range []string{"recipients_upserted_total", "recipients_retried_total", "recipients_dead_lettered_total"} {
		families, err := b.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		total := 0.0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == name {
					total += m.GetCounter().GetValue()
				}
			}
		}
		fmt.Fprintf(&text, "%v ", total)
	}
	b.timed(t)
	if got := strings.TrimSpace(text.String()); got != want {
		t.Errorf("upserted, retried, dead-lettered: %s, want %s", got, want)
	}
}

// timed checks that each stored or retried message is timed, and that a retry has a reason.
func (b *bench) timed(t *testing.T) {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	timed := uint64(0)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "recipients_processing_duration_seconds":
				timed += m.GetHistogram().GetSampleCount()
			case "recipients_retried_total":
				if l := m.GetLabel(); len(l) != 1 || l[0].GetName() != "reason" || l[0].GetValue() == "OTHER" && m.GetCounter().GetValue() > 0 {
					t.Errorf("recipients_retried_total%v = %v", l, m.GetCounter().GetValue())
				}
			}
		}
	}
	if timed == 0 {
		t.Error("no message was timed")
	}
}

// retried returns the indexes of the tasks to be retried, with the reason of the last one.
func retried(t *testing.T, verdicts []error) (places []int, reason string) {
	t.Helper()
	for i, err := range verdicts {
		var later *queue.RetryLater
		switch {
		case errors.As(err, &later):
			places, reason = append(places, i), later.Reason
			if later.Delay != 10*time.Second {
				t.Errorf("retried in %s", later.Delay)
			}
		case err != nil:
			t.Errorf("%d: %v", i, err)
		}
	}
	return places, reason
}

// From the first delivery to the dead letter: only the failing messages are retried, and end in the
// DLQ with the reason.
func TestRefusedRecipients(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.exec(t, `CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.nome = 'poison' THEN RAISE EXCEPTION 'poison of % is not taken', NEW.email; END IF; RETURN NEW; END $$`)
	b.exec(t, `CREATE TRIGGER poison BEFORE INSERT OR UPDATE ON recipients FOR EACH ROW EXECUTE FUNCTION poison()`)
	names := make([]string, 100)
	names[17], names[18], names[99] = "poison", "poison", "poison"
	tasks := b.accept(t, names...)

	places, reason := retried(t, b.upserter.Handle(t.Context(), tasks))
	if diff := cmp.Diff([]int{17, 18, 99}, places); diff != "" {
		t.Error(diff)
	}
	if !strings.HasPrefix(reason, "db_error: ") || !strings.Contains(reason, "poison of s***@e***.com is not taken") {
		t.Errorf("because %q", reason)
	}
	if got := b.state(t); got != "97 written, 3 waiting, 0 dead" {
		t.Error(got)
	}
	b.counts(t, "97 3 0")

	// The broker has moved them to the DLQ; one of them was delivered twice.
	var dead []queue.Task
	for _, i := range []int{17, 18, 99, 17} {
		tasks[i].Retried = 3
		dead = append(dead, tasks[i])
	}
	if places, reason := retried(t, b.upserter.HandleDead(t.Context(), dead)); len(places) > 0 {
		t.Errorf("%v come again: %s", places, reason)
	}
	if got := b.state(t); got != "97 written, 0 waiting, 3 dead" {
		t.Error(got)
	}
	var letter string
	err := b.SQL.QueryRowContext(t.Context(), `SELECT concat_ws('|', d.target, d.email, d.reason, d.attempts, d.last_error, d.company_id = o.company_id, o.status)
		FROM dead_letters d JOIN email_outbox o ON o.id = d.outbox_id WHERE d.outbox_id = $1`, tasks[99].ID).Scan(&letter)
	if err != nil {
		t.Fatal(err)
	}
	want := "recipients.upsert|secret99@example.com|RECIPIENT_REFUSED|5|upsert recipients: refused by the database: pq: poison of s***@e***.com is not taken"
	if !strings.HasPrefix(letter, want) || !strings.HasSuffix(letter, "|t|FAILED") {
		t.Errorf("%s, want %s", letter, want)
	}
	if strings.Contains(b.log.String(), "secret") {
		t.Errorf("an address in the log: %s", b.log)
	}
}

// The purpose of the DLQ: the cause is fixed, and nothing is lost.
func TestDLQ_CauseFixedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	tasks := b.accept(t, "Ana", "Bia")
	b.exec(t, `ALTER TABLE recipients ADD CONSTRAINT poison CHECK (nome <> 'Ana')`)
	if places, _ := retried(t, b.upserter.Handle(t.Context(), tasks)); !cmp.Equal(places, []int{0}) {
		t.Errorf("%v come again", places)
	}
	b.exec(t, `ALTER TABLE recipients DROP CONSTRAINT poison`)
	if places, reason := retried(t, b.upserter.HandleDead(t.Context(), tasks)); len(places) > 0 {
		t.Errorf("%v come again: %s", places, reason)
	}
	if got := b.state(t); got != "2 written, 0 waiting, 0 dead" {
		t.Error(got)
	}
}

// Messages that name no row become dead letters; the others of the batch are stored.
func TestMessagesWithoutRow(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(*bench) queue.BatchHandler{
		"queue": func(b *bench) queue.BatchHandler { return b.upserter.Handle },
		"DLQ":   func(b *bench) queue.BatchHandler { return b.upserter.HandleDead },
	} {
		b := newBench(t, nil)
		tasks := []queue.Task{
			{Payload: []byte("\x00nonsense")},
			{Payload: []byte(`{"id": "1", "name": "João Silva", "email": "joao@email.com"}`)},
			{Payload: []byte(`{"outboxId": "42"}`)},
			b.accept(t, "Ana")[0],
			{Payload: nil},
			taskOf(uuid.New()),
			taskOf(b.Accept(t, b.company, nil)), // an email's
		}
		if places, reason := retried(t, handler(b)(t.Context(), tasks)); len(places) > 0 {
			t.Errorf("%s: %v come again: %s", name, places, reason)
		}
		if got := b.state(t); got != "1 written, 0 waiting, 6 dead" {
			t.Errorf("%s: %s", name, got)
		}
		var reasons string
		err := b.SQL.QueryRowContext(t.Context(), `SELECT string_agg(DISTINCT concat(reason, ' ', target, ' ', last_error IS NOT NULL), ', ') FROM dead_letters`).Scan(&reasons)
		if err != nil || reasons != "INVALID_PAYLOAD recipients.upsert t, OUTBOX_NOT_FOUND recipients.upsert t" {
			t.Errorf("%s: %s, %v", name, reasons, err)
		}
		b.counts(t, "1 0 6")
	}
}

// Neither a database outage nor a missing migration loses a recipient.
func TestDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	tasks := append(b.accept(t, "Ana", "Bia"), queue.Task{Payload: []byte("nonsense")})
	b.exec(t, `ALTER TABLE recipients RENAME TO people`)
	b.exec(t, `ALTER TABLE dead_letters RENAME TO letters`)
	for name, handle := range map[string]queue.BatchHandler{"queue": b.upserter.Handle, "DLQ": b.upserter.HandleDead} {
		if places, _ := retried(t, handle(t.Context(), tasks)); len(places) != 3 {
			t.Errorf("%s: %v come again", name, places)
		}
	}
	b.exec(t, `ALTER TABLE people RENAME TO recipients`)
	b.exec(t, `ALTER TABLE letters RENAME TO dead_letters`)
	if got := b.state(t); got != "0 written, 2 waiting, 0 dead" {
		t.Error(got)
	}

	away := storetest.New(t)
	away.Store.Close()
	closed := recipient.New(recipient.Params{
		Log: slog.New(slog.DiscardHandler), Store: away.Store, Database: dbcheck.New(slog.New(slog.DiscardHandler), away.Store.Confirm),
		Metrics: recipient.NewMetrics(prometheus.NewRegistry()), RetryDelay: 10 * time.Second,
	})
	for name, handle := range map[string]queue.BatchHandler{"queue": closed.Handle, "DLQ": closed.HandleDead} {
		places, reason := retried(t, handle(t.Context(), tasks))
		if len(places) != 3 || reason == "" {
			t.Errorf("%s: %v come again: %s", name, places, reason)
		}
	}
}

// A stop does not interrupt a running batch.
func TestStopFinishesTheBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	tasks := b.accept(t, "Ana", "Bia")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if places, reason := retried(t, b.upserter.Handle(ctx, tasks)); len(places) > 0 {
		t.Errorf("%v come again: %s", places, reason)
	}
	if got := b.state(t); got != "2 written, 0 waiting, 0 dead" {
		t.Error(got)
	}
}

// A message that waited for its retry must not overwrite newer data.
func TestOlderRetryDoesNotOverwrite(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	older, newer := b.accept(t, "Ana"), b.accept(t, "Ana Maria")
	for _, tasks := range [][]queue.Task{newer, older, newer, older} {
		if places, reason := retried(t, b.upserter.Handle(t.Context(), tasks)); len(places) > 0 {
			t.Errorf("%v come again: %s", places, reason)
		}
	}
	var names []byte
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT json_agg(nome) FROM recipients`).Scan(&names); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(names, &got); err != nil || !cmp.Equal(got, []string{"Ana Maria"}) {
		t.Errorf("%s, %v", names, err)
	}
}
