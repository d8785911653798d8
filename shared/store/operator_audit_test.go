package store_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"email-gateway/schema"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/suppression"
	"email-gateway/shared/store/tenant"
)

// acted returns the audit entries after the given one, newest first.
func acted(t *testing.T, d storetest.Database, since int64) []audit.Entry {
	t.Helper()
	all, err := d.Store.Audit(t.Context(), audit.Filter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range all {
		if e.ID <= since {
			return all[:i]
		}
	}
	return all
}

// Every change that an operator makes leaves one row, in its own commit.
func TestAudit_OfEveryChange(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s, ctx := d.Store, t.Context()
	company := newCompany("Acme", "acme.example")
	if err := s.CreateCompany(ctx, storetest.Because("new customer"), company); err != nil {
		t.Fatal(err)
	}
	key := tenant.APIKey{KeyID: "key1", CompanyID: company.ID, Name: "billing", Environment: "test", SecretSHA256: make([]byte, 32), Scopes: []string{"emails:send"}, Burst: 1}
	open, waiting, gone := d.Accept(t, company.ID, nil), d.Accept(t, company.ID, nil), giveUp(t, d, company.ID, nil)
	retried := letterOf(t, d, gone)
	other := giveUp(t, d, company.ID, nil)
	id := company.ID
	tests := []struct {
		do      func(by audit.Operator) error
		action  string
		company *uuid.UUID
		subject string
		details string // a part of them
	}{
		{func(by audit.Operator) error { return s.SuspendCompany(ctx, by, id) }, "company.suspend", &id, "", "{}"},
		{func(by audit.Operator) error { return s.ResumeCompany(ctx, by, id) }, "company.resume", &id, "", "{}"},
		{func(by audit.Operator) error {
			_, err := s.SetRetention(ctx, by, tenant.Retention{CompanyID: id, Logs: &key.Burst})
			return err
		}, "company.retention", &id, "", `"logsDays": 1`},
		{func(by audit.Operator) error { _, err := s.CreateAPIKey(ctx, by, key); return err }, "key.create", &id, "key1", `"name": "billing"`},
		{func(by audit.Operator) error { return s.RevokeAPIKey(ctx, by, "key1") }, "key.revoke", &id, "key1", "{}"},
		{func(by audit.Operator) error { return s.AddSenderDomain(ctx, by, id, "b.example") }, "domain.add", &id, "b.example", "{}"},
		{func(by audit.Operator) error { return s.RemoveSenderDomain(ctx, by, id, "b.example") }, "domain.remove", &id, "b.example", "{}"},
		{func(by audit.Operator) error { return s.AllowProgram(ctx, by, id, user(t, d.SQL)) }, "program.allow", &id, user(t, d.SQL), "{}"},
		{func(by audit.Operator) error { return s.RevokeProgram(ctx, by, id, user(t, d.SQL)) }, "program.revoke", &id, user(t, d.SQL), "{}"},
		{func(by audit.Operator) error {
			return second(s.HoldLanes(ctx, by, id, lane.Filter{Queue: email.QueueNormal}, true))
		}, "lane.pause", &id, "", `"lanes": 1`},
		{func(by audit.Operator) error { return second(s.ReleaseLanes(ctx, by, id, lane.Filter{}, "", false)) }, "lane.resume", &id, "", `"lanes": 1`},
		{func(by audit.Operator) error { return second(s.HoldBreaker(ctx, by, true)) }, "gate.hold", nil, "", "{}"},
		{func(by audit.Operator) error { return second(s.ReleaseBreaker(ctx, by)) }, "gate.release", nil, "", "{}"},
		{func(by audit.Operator) error { _, err := s.CancelEmail(ctx, by, id, open); return err }, "email.cancel", &id, open.String(), "{}"},
		{func(by audit.Operator) error {
			return s.CancelEmails(ctx, by, []uuid.UUID{waiting}, func(uuid.UUID, outbox.Advanced) {})
		}, "email.cancel", &id, "", `"emails": 1`},
		{func(by audit.Operator) error { _, err := s.ReplayEmail(ctx, by, id, open, time.Hour); return err }, "email.retry", &id, open.String(), "{}"},
		{func(by audit.Operator) error { return s.RecordReveal(ctx, by, "email", id, open.String()) }, "email.reveal", &id, open.String(), "{}"},
		{
			func(by audit.Operator) error {
				added, err := s.SuppressAs(ctx, by, id, suppression.Suppression{Address: "Ana@example.com", Reason: suppression.Manual})
				if err == nil && (added.Address != "ana@example.com" || added.CreatedAt.IsZero()) {
					t.Errorf("%+v", added)
				}
				return err
			}, "suppression.add", &id, "", `"address": "a***@e***.com"`,
		},
		{
			func(by audit.Operator) error {
				return s.UnsuppressAs(ctx, by, id, "ana@example.com", suppression.Manual)
			},
			"suppression.remove", &id, "", `"reason": "MANUAL"`,
		},
		{
			func(by audit.Operator) error { return s.RetryDeadLetterAs(ctx, by, retried, time.Hour) },
			"dlq.retry", &id, retried.ID.String(), `"outboxId": "` + gone.String(),
		},
		{
			func(by audit.Operator) error {
				did, err := s.DiscardDeadLetterAs(ctx, by, letterOf(t, d, other))
				if !did && err == nil {
					t.Error("the dead letter was not open")
				}
				return err
			}, "dlq.discard", &id, "", `"outboxId": "` + other.String(),
		},
		{
			func(by audit.Operator) error {
				_, err := s.CreateReplayAs(ctx, by, deadletter.NewReplay{
					ID: uuid.Must(uuid.NewV7()), CompanyID: &id, Action: deadletter.ReplayDiscard, Rate: 10,
					Filter: deadletter.LetterFilter{Recipient: "ana@example.com", Reason: "X"},
				})
				return err
			}, "dlq.discard-many", &id, "", `"recipient": "a***@e***.com"`,
		},
	}
	for _, tt := range tests {
		before := acted(t, d, 0)
		if err := tt.do(storetest.Because("why of " + tt.action)); err != nil {
			t.Errorf("%s: %v", tt.action, err)
			continue
		}
		rows := acted(t, d, before[0].ID)
		if len(rows) != 1 {
			t.Errorf("%s left %d audit entries, want 1", tt.action, len(rows))
			continue
		}
		got, reason := rows[0], "why of "+tt.action
		want := audit.Entry{
			Operator: "ana", DatabaseRole: user(t, d.SQL), Action: tt.action, CompanyID: tt.company, Reason: &reason,
		}
		if tt.company != nil {
			want.Company = &company.Name
		}
		if tt.subject != "" {
			want.Subject = &tt.subject
		}
		ignored := cmpopts.IgnoreFields(audit.Entry{}, "ID", "At", "Details")
		if tt.subject == "" {
			ignored = cmpopts.IgnoreFields(audit.Entry{}, "ID", "At", "Details", "Subject")
		}
		if diff := cmp.Diff(want, got, ignored); diff != "" || !strings.Contains(string(got.Details), tt.details) || time.Since(got.At) > time.Minute {
			t.Errorf("%s at %s (-want +got):\n%s\ndetails %s", tt.action, got.At, diff, got.Details)
		}
	}
	before := acted(t, d, 0)
	if err := s.UnsuppressAs(ctx, storetest.Because("again"), id, "ana@example.com", suppression.Manual); !errors.Is(err, store.ErrNotFound) || len(acted(t, d, before[0].ID)) != 0 {
		t.Errorf("what is not suppressed: %v, and %d rows", err, len(acted(t, d, before[0].ID)))
	}
	if now := status(t, d, gone); now != email.Pending {
		t.Errorf("the email of the dead letter that was sent again is %s", now)
	}
	if now := status(t, d, open); now != email.Pending {
		t.Errorf("the email that was cancelled and sent again is %s", now)
	}
}

func user(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT session_user").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

func status(t *testing.T, d storetest.Database, id uuid.UUID) email.Status {
	t.Helper()
	found, err := d.Store.FindEmailDiagnosis(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return found.Status
}

// A rejected or ineffective change leaves no audit entry, and a change whose audit entry cannot be written is not made.
func TestAudit_AllOrNothing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s, ctx := d.Store, t.Context()
	company := d.Company(t)
	sent := giveUp(t, d, company, nil)
	before := len(acted(t, d, 0))
	letter := letterOf(t, d, sent)
	run(t, d, "UPDATE dead_letters SET resolved_at = now()")
	if err := s.SuspendCompany(ctx, storetest.Because("x"), uuid.New()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a company that does not exist: %v", err)
	}
	if err := s.RevokeAPIKey(ctx, storetest.Because("x"), "nokey"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a key that does not exist: %v", err)
	}
	if err := s.AllowProgram(ctx, storetest.Because("x"), company, "norole"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a role that does not exist: %v", err)
	}
	if err := s.RevokeProgram(ctx, storetest.Because("x"), company, user(t, d.SQL)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a program grant that does not exist: %v", err)
	}
	if moved, err := s.CancelEmail(ctx, storetest.Because("x"), company, sent); err != nil || moved.Applied || moved.Status != email.Failed {
		t.Errorf("cancel what has failed: %+v, %v", moved, err)
	}
	if did, err := s.DiscardDeadLetterAs(ctx, storetest.Because("x"), letter); err != nil || did {
		t.Errorf("discard what is resolved: %v, %v", did, err)
	}
	if n := len(acted(t, d, 0)); n != before {
		t.Errorf("%d audit entries, want none", n-before)
	}

	if err := s.SuspendCompany(ctx, audit.Operator{}, company); err == nil {
		t.Error("an operator without a name has suspended a company")
	}
	run(t, d, "ALTER TABLE operator_audit ADD CHECK (operator <> 'ana')")
	if err := s.SuspendCompany(ctx, storetest.Because("x"), company); err == nil {
		t.Error("a change was made although its audit entry could not be written")
	}
	found, err := s.FindCompany(ctx, company.String())
	if err != nil || found.SuspendedAt != nil {
		t.Errorf("suspended at %v, %v", found.SuspendedAt, err)
	}
}

// A change that is already in effect leaves no audit entry: only the first of two does, unless the second changes something
// else.
func TestAudit_OfRepeatedChanges(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s, ctx := d.Store, t.Context()
	company, days := d.Company(t), 30
	key := tenant.APIKey{KeyID: "key1", CompanyID: company, Name: "billing", Environment: "test", SecretSHA256: make([]byte, 32), Scopes: []string{"emails:send"}, Burst: 1}
	if _, err := s.CreateAPIKey(ctx, storetest.Because("x"), key); err != nil {
		t.Fatal(err)
	}
	suppress := func(note *string) func(by audit.Operator) error {
		return func(by audit.Operator) error {
			_, err := s.SuppressAs(ctx, by, company, suppression.Suppression{Address: "ana@example.com", Reason: suppression.Manual, Note: note})
			return err
		}
	}
	hold := func(by audit.Operator) error { return second(s.HoldLanes(ctx, by, company, lane.Filter{}, true)) }
	keep := func(logs *int) func(by audit.Operator) error {
		return func(by audit.Operator) error {
			_, err := s.SetRetention(ctx, by, tenant.Retention{CompanyID: company, Logs: logs})
			return err
		}
	}
	for _, tt := range []struct {
		what, why string
		do        func(by audit.Operator) error
		want      int
	}{
		{"suspend", "unpaid", func(by audit.Operator) error { return s.SuspendCompany(ctx, by, company) }, 1},
		{"suspend for another reason", "complaints", func(by audit.Operator) error { return s.SuspendCompany(ctx, by, company) }, 1},
		{"resume", "", func(by audit.Operator) error { return s.ResumeCompany(ctx, by, company) }, 1},
		{"set no retention", "", keep(nil), 0},
		{"take back a retention that is not set", "", keep(new(int)), 0},
		{"set a retention", "", keep(&days), 1},
		{"set it again", "", keep(&days), 0},
		{"take the retention back", "", keep(new(int)), 1},
		{"revoke a key", "lost", func(by audit.Operator) error { return s.RevokeAPIKey(ctx, by, "key1") }, 1},
		{"add a domain", "", func(by audit.Operator) error { return s.AddSenderDomain(ctx, by, company, "b.example") }, 1},
		{"allow a program", "", func(by audit.Operator) error { return s.AllowProgram(ctx, by, company, user(t, d.SQL)) }, 1},
		{"hold lanes", "bounces", hold, 1},
		{"hold lanes for another reason", "complaints", hold, 1},
		{"release lanes", "", func(by audit.Operator) error {
			return second(s.ReleaseLanes(ctx, by, company, lane.Filter{}, "", false))
		}, 1},
		{"hold the circuit breaker", "drill", func(by audit.Operator) error { return second(s.HoldBreaker(ctx, by, true)) }, 1},
		{"hold the circuit breaker for another reason", "SES asked", func(by audit.Operator) error { return second(s.HoldBreaker(ctx, by, true)) }, 1},
		{"release the circuit breaker", "", func(by audit.Operator) error { return second(s.ReleaseBreaker(ctx, by)) }, 1},
		{"suppress", "", suppress(nil), 1},
		{"suppress with a note", "", suppress(&key.Name), 1},
		{"suppress without one", "", suppress(nil), 0},
	} {
		before := acted(t, d, 0)
		for range 2 {
			if err := tt.do(storetest.Because(tt.why)); err != nil {
				t.Errorf("%s: %v", tt.what, err)
			}
		}
		if n := len(acted(t, d, before[0].ID)); n != tt.want {
			t.Errorf("%s twice: %d rows, want %d", tt.what, n, tt.want)
		}
	}
}

func TestAudit_Filter(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s, ctx := d.Store, t.Context()
	acme, beta := d.Company(t), d.Company(t)
	for _, do := range []error{
		s.SuspendCompany(ctx, storetest.Because("unpaid"), acme), s.SuspendCompany(ctx, audit.Operator{Name: "eva"}, beta),
		s.ResumeCompany(ctx, storetest.Because(""), acme), second(s.HoldBreaker(ctx, storetest.Because("drill"), false)),
	} {
		if do != nil {
			t.Fatal(do)
		}
	}
	run(t, d, "UPDATE operator_audit SET at = now() - interval '1 hour' WHERE action = 'company.suspend'")
	ago := time.Now().Add(-time.Minute)
	for _, tt := range []struct {
		name   string
		filter audit.Filter
		want   []string
	}{
		{"newest first", audit.Filter{Operator: "ana"}, []string{"gate.hold", "company.resume", "company.suspend"}},
		{"of a company", audit.Filter{Company: acme, Operator: "ana"}, []string{"company.resume", "company.suspend"}},
		{"of one action", audit.Filter{Action: "company.suspend"}, []string{"company.suspend", "company.suspend"}},
		{"about a thing", audit.Filter{Action: "gate"}, []string{"gate.hold"}},
		{"not by a part of a word", audit.Filter{Action: "gat"}, nil},
		{"since", audit.Filter{Since: &ago, Operator: "ana"}, []string{"gate.hold", "company.resume"}},
		{"until", audit.Filter{Until: &ago}, []string{"company.suspend", "company.suspend"}},
		{"at most", audit.Filter{Operator: "ana", Limit: 1}, []string{"gate.hold"}},
	} {
		if tt.filter.Limit == 0 {
			tt.filter.Limit = 10
		}
		found, err := s.Audit(ctx, tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		var actions []string
		for _, e := range found {
			actions = append(actions, e.Action)
		}
		if diff := cmp.Diff(tt.want, actions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Entries are kept for two years, for every role; and no role can forge a time or a role.
func TestAudit_IsKeptTwoYearsAndNeverChanged(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	company := d.Company(t)
	for _, age := range []string{"2 years 1 hour", "1 year 364 days", "0"} {
		if err := d.Store.SuspendCompany(t.Context(), storetest.Because(age), company); err != nil {
			t.Fatal(err)
		}
		run(t, d, "UPDATE operator_audit SET at = now() - reason::interval WHERE reason = '"+age+"'")
	}
	conn, err := d.SQL.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	as := func(role, statement string) (int64, error) {
		execOn(t, conn, "SET ROLE "+role)
		defer execOn(t, conn, "RESET ROLE")
		result, err := conn.ExecContext(t.Context(), statement)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	}
	const add = "INSERT INTO operator_audit (operator, action"
	for _, refused := range []struct{ role, statement string }{
		{"gateway_operator", add + ", at) VALUES ('eva', 'gate.hold', now() - interval '1 day')"},
		{"gateway_operator", add + ", database_role) VALUES ('eva', 'gate.hold', 'postgres')"},
		{"gateway_operator", "UPDATE operator_audit SET operator = 'eva'"},
		{"gateway_operator", "DELETE FROM operator_audit"},
		{"gateway_dispatcher", add + ") VALUES ('eva', 'gate.hold')"},
		{"gateway_api", "SELECT FROM operator_audit"},
		{"gateway_worker", "SELECT FROM operator_audit"},
	} {
		if _, err := as(refused.role, refused.statement); err == nil {
			t.Errorf("%s may %s", refused.role, refused.statement)
		}
	}
	if n, err := as("gateway_operator", add+") VALUES ('eva', 'gate.hold')"); err != nil || n != 1 {
		t.Errorf("gateway_operator adds %d rows, %v", n, err)
	}
	if n, err := as("gateway_dispatcher", "DELETE FROM operator_audit"); err != nil || n != 1 {
		t.Errorf("gateway_dispatcher deletes %d rows, %v; want the one older than two years", n, err)
	}
	run(t, d, "UPDATE operator_audit SET at = at - interval '2 years' WHERE reason = '0'")
	for _, want := range []int{1, 0} {
		if n, err := d.Store.CleanAudit(t.Context(), 10); err != nil || n != want {
			t.Errorf("cleaned %d, %v; want %d", n, err, want)
		}
	}
}
