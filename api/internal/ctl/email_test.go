package ctl_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/api/internal/ctl"
	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// shownEmail has exactly the fields that email show --json may print.
type shownEmail struct {
	OutboxID, CompanyID, Company, To, RecipientID, ExternalID, Subject, RequestID string
	Status                                                                        email.Status
	Tags                                                                          []string
	Attempts, Throttles                                                           int
	PossibleDuplicate, OutcomeUnknown                                             bool
	SESMessageID, ErrorCode, ErrorReason                                          string
	DurationMS, Priority                                                          *int
	DeliveryPolicy                                                                email.Delivery
	MailingID                                                                     string
	Tries                                                                         email.Tries
	From, ReplyTo                                                                 string
	CC, BCC                                                                       []string
	SendAt                                                                        *time.Time
	CreatedAt, ExpiresAt                                                          time.Time
	NextAttemptAt, SentAt, FailedAt                                               *time.Time
	Events                                                                        []struct {
		Seq       int
		Type      email.EventType
		CreatedAt time.Time
		Metadata  map[string]any
	}
}

type explained struct {
	OutboxID, Company string
	Status            email.Status
	AskedAt           time.Time
	Findings          []struct{ Code, Text string }
}

func (e explained) codes() string {
	var codes []string
	for _, f := range e.Findings {
		codes = append(codes, f.Code)
	}
	return strings.Join(codes, " ")
}

// A failing email from acceptance to its final status, as an operator sees it.
func TestEmail_FromTheDatabase(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	companyID := d.Company(t)
	id := d.Accept(t, companyID, func(e *outbox.NewEmail) { e.Job.Tags = []string{"invoice"} })
	advance := func(tr outbox.Transition) {
		t.Helper()
		tr.ID = id
		if done, err := d.Store.Advance(t.Context(), tr); err != nil || !done.Applied {
			t.Fatalf("advance: %+v, %v", done, err)
		}
	}
	report := func(service, details string) {
		t.Helper()
		if err := d.Store.ReportStatus(t.Context(), service, "here-1", time.Now(), json.RawMessage(details)); err != nil {
			t.Fatal(err)
		}
	}
	explain := func(want string) explained {
		t.Helper()
		var got explained
		o.decode(t, &got, "email", "explain", id.String())
		if got.codes() != want || got.OutboxID != id.String() || got.AskedAt.IsZero() {
			t.Errorf("explained %+v, want %s", got, want)
		}
		return got
	}
	event := func(kind email.EventType, metadata map[string]any) email.Event {
		return email.Event{Type: kind, At: time.Now(), Metadata: metadata}
	}

	explain("NO_DISPATCHER DUE DEADLINE")
	report("dispatcher", `{"redis":{"status":"disconnected"}}`)
	explain("REDIS_DOWN DUE DEADLINE")
	report("dispatcher", `{"redis":{"status":"connected"}}`)
	explain("DUE DEADLINE")
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE process_status SET updated_at = now() - interval '16 s'`); err != nil {
		t.Fatal(err)
	}
	explain("NO_DISPATCHER DUE DEADLINE")
	report("dispatcher", `{}`)
	report("worker", `{}`)
	o.must(t, "company", "suspend", companyID.String(), "--reason", "unpaid")
	if got := explain("COMPANY_SUSPENDED DUE DEADLINE"); !strings.Contains(got.Findings[0].Text, "unpaid") {
		t.Error(got.Findings[0])
	}
	o.must(t, "company", "resume", companyID.String())

	token := uuid.New()
	advance(outbox.Transition{
		Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1,
		Events: []email.Event{
			event(email.EventReceived, nil), event(email.EventValidated, nil), event(email.EventSentAttempt, map[string]any{"attempt": 1}),
		},
	})
	explain("IN_WORK")
	advance(outbox.Transition{
		Guard: outbox.GuardAttempt, Token: token, Status: email.Failed, DeadLetter: true, Duration: 45 * time.Millisecond,
		ErrorCode: "SES_REJECTED", ErrorReason: "Email address is not verified: ana@example.com",
		Events: []email.Event{event(email.EventFailed, map[string]any{
			"errorCode": "SES_REJECTED", "errorMessage": "Email address is not verified: ana@example.com",
		})},
	})
	if got := explain("FAILED RETRY_POSSIBLE"); strings.Contains(got.Findings[0].Text, "ana@example.com") {
		t.Error(got.Findings[0])
	}

	var masked, revealed shownEmail
	o.decode(t, &masked, "email", "show", id.String())
	o.decode(t, &revealed, "email", "show", "--reveal", id.String())
	if masked.To != "a***@e***.com" || masked.ErrorReason != "Email address is not verified: a***@e***.com" ||
		masked.Events[3].Metadata["errorMessage"] != masked.ErrorReason {
		t.Errorf("masked: %+v", masked)
	}
	if revealed.To != "ana@example.com" || !strings.HasSuffix(revealed.ErrorReason, "ana@example.com") ||
		revealed.Events[3].Metadata["errorMessage"] != revealed.ErrorReason {
		t.Errorf("revealed: %+v", revealed)
	}
	if masked.OutboxID != id.String() || masked.Status != email.Failed || masked.Attempts != 1 || masked.ErrorCode != "SES_REJECTED" ||
		*masked.DurationMS != 45 || masked.FailedAt == nil || masked.NextAttemptAt != nil || masked.ExternalID != "CUST-1" || len(masked.Events) != 4 {
		t.Errorf("shown: %+v", masked)
	}
	if diff := cmp.Diff([]string{"invoice"}, masked.Tags); diff != "" {
		t.Error(diff)
	}
	if text := o.must(t, "email", "show", id.String()); strings.Contains(text, "ana@example.com") || !strings.Contains(text, "a***@e***.com") {
		t.Errorf("shown in text:\n%s", text)
	}

	// The outbox row is purged, the log stays.
	if _, err := d.SQL.ExecContext(t.Context(), `DELETE FROM email_outbox`); err != nil {
		t.Fatal(err)
	}
	explain("FAILED PURGED")
	o.decode(t, &masked, "email", "show", id.String())
}

func TestEmailShow_BeforeAnyWorker(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	id := d.Accept(t, d.Company(t), nil)
	var shown shownEmail
	o.decode(t, &shown, "email", "show", id.String())
	if shown.Status != email.Pending || shown.NextAttemptAt == nil || shown.Events == nil || len(shown.Events) != 0 || shown.Tags == nil {
		t.Errorf("shown: %+v", shown)
	}
}

// An operator cancels the emails of a list, of any companies, in groups. A repeated command changes nothing.
func TestEmail_CancelList(t *testing.T) {
	t.Parallel()
	tenant, by, d := newTenant(t)
	acme, beta := storetest.Ask[uuid.UUID](t, d, "SELECT id FROM companies"), d.Company(t)
	accept := func(company uuid.UUID) string { return d.Accept(t, company, nil).String() }
	lines := []string{"\t" + accept(beta) + "\r", ""}
	for range 260 { // more than a group
		lines = append(lines, accept(acme))
	}
	cancelled, sent, held, unknown := accept(acme), accept(acme), accept(acme), uuid.NewString()
	by.must(t, "email", "cancel", cancelled, "--reason", "alone")
	exec(t, d, `UPDATE email_outbox SET status = 'SENT', processed_at = now() WHERE id = $1`, sent)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, held); err != nil {
		t.Fatal(err)
	}
	list := strings.Join(append(lines, cancelled, sent, held, lines[2], unknown), "\n")

	count := func() int {
		return storetest.Ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE status = 'CANCELLED'`)
	}
	for _, wrong := range []struct {
		as          operator
		stdin, want string
	}{
		{by, list + "\n" + cancelled + "|\n", `line 268: "` + cancelled + `|" is not an email id`},
		{by, list + "\n" + strings.Repeat("x", 64<<10), "line 268 is too long"},
		{tenant, list, "only operators cancel"},
	} {
		wrong.as.stdin = wrong.stdin
		if got := wrong.as.run(t, "email", "cancel", "-", "--reason", "x"); got.code != ctl.ExitUsage || !strings.Contains(got.stderr, wrong.want) || count() != 1 {
			t.Errorf("%+v, want %s", got, wrong.want)
		}
	}

	type summary struct {
		Emails, Cancelled, AlreadyCancelled int
		NotCancelled                        map[string]int
	}
	left := map[string]int{"SENT": 1, "LOCKED": 1, "NOT_FOUND": 1}
	by.stdin = list
	for _, want := range []summary{{265, 261, 1, left}, {265, 0, 262, left}} {
		got := by.run(t, "email", "cancel", "-", "--reason", "sent before", "--json")
		var s summary
		if err := json.Unmarshal([]byte(got.stdout), &s); err != nil || got.code != ctl.ExitFailed || count() != 262 {
			t.Fatalf("%+v, %v, %d are cancelled", got, err, count())
		}
		if diff := cmp.Diff(want, s); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for _, line := range []string{sent + " is SENT\n", held + " is LOCKED\n", unknown + " is NOT_FOUND\n", "3 emails were not cancelled"} {
			if !strings.Contains(got.stderr, line) {
				t.Errorf("standard error lacks %q: %s", line, got.stderr)
			}
		}
	}
	by.stdin = ""
	if text := by.must(t, "email", "cancel", "-", "--reason", "x"); text != "0 of 0 emails were cancelled.\n" {
		t.Error(text)
	}

	// Each commit has an entry for each company.
	entries := storetest.Ask[string](t, d, `SELECT string_agg(n, ' ' ORDER BY n) FROM (
		SELECT CASE company_id WHEN '`+acme.String()+`' THEN 'acme ' ELSE 'beta ' END || sum((details ->> 'emails')::int) || ' in ' || count(*) AS n
		FROM operator_audit WHERE action = 'email.cancel' AND reason = 'sent before' AND subject IS NULL GROUP BY company_id) t`)
	if entries != "acme 260 in 2 beta 1 in 1" {
		t.Error(entries)
	}
}
