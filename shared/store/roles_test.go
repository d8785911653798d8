package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/schema"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// callers are the methods that each program calls. Each method of a Store is listed here
// with a program: a developer who adds one lists which program may run its statements.
var callers = map[string][]string{
	"gateway_api": {
		"tenant.FindCallers",
		"outbox.NewAccepter", "outbox.Accept", "outbox.AcceptBatch", "outbox.Exists", "outbox.Advance",
		"outbox.AdvanceIn", "outbox.AdvanceAllIn", "outbox.InsertMailingJob", "outbox.AcceptIn", "outbox.Attached",
		"outbox.MoveIn", "outbox.AdvanceAll", "outbox.AggregateEmails", "outbox.run",
		"recipient.AcceptRecipients", "recipient.RecipientMatches", "recipient.FindRecipient",
		"recipient.DeleteRecipient", "recipient.FindKnown",
		"idempotency.FindAnswer", "idempotency.Claim", "idempotency.WriteAnswer", "idempotency.FindUsed",
		"idempotency.StoreAnswer",
		"emails.FindEmail", "emails.Timeline", "emails.ListEmails", "emails.ShowIn", "emails.ChangeEmail",
		"emails.Reschedule",
		"suppression.Suppress", "suppression.Unsuppress", "suppression.Suppressions", "suppression.AddAll",
		"suppression.AddSuppression",
		"process.ProcessStatuses",
		"breaker.Breaker",
		"feedback.RecordFeedback", "feedback.recordGroup", // of its group
		"lane.Wake", "lane.WakeLanes",
		"quota.Lock", "quota.OpenBudget", "quota.TakeFrom", "quota.InTx", "quota.Read", "quota.Near",
		"quota.SetQuotaDefaults",
		"mailing.RetryFailedMailing", "mailing.RetryFailedMailingIn", "mailing.IngestMailing", "mailing.run",
		"mailing.flush", "mailing.MailingExists", "mailing.FindMailing",
		"mailing.ListMailings", "mailing.MailingEntries", "mailing.StartMailing", "mailing.PauseMailing",
		"mailing.ResumeMailing", "mailing.CancelMailing", "mailing.MoveMailing", "mailing.RetryFailedEntries",
		"deadletter.ListDeadLetters", "deadletter.FindDeadLetter", "deadletter.RetryOne", "deadletter.DiscardOne",
		"deadletter.CreateReplay", "deadletter.FindReplay",
		"mailingreport.MailingRows", "mailingreport.MailingVerdicts",
		"Confirm", "NewClock", "AddFile",
		"event.Read", "event.WithEvents", "event.Before", "event.After",
		"usage.Month", "usage.Quotas",
		"template.Create", "template.Publish", "template.Delete", "template.Resolve", "template.ResolveVersion",
		"template.Find", "template.List", "template.History",
		"file.Add", "file.UseFile", "file.Find", "file.List", "file.Attachments",
		"file.AttachmentsOf", "file.Hold", "file.Link", "file.ClearMissing",
		"webhook.Create", "webhook.List", "webhook.Find", "webhook.Update", "webhook.Delete", "webhook.Rotate",
		"webhook.Enable", "webhook.Disable", "webhook.Deliveries", "webhook.FindDelivery", "webhook.RetryDelivery",
		"webhook.CreateTest", "webhook.CreateReplay", "webhook.FindReplay",
		"installation.Installation", "installation.RecordMarked", "installation.MayClaim",
	},
	"gateway_dispatcher": {
		"dispatch.WaitingLanes", "dispatch.ProbeLanes", "dispatch.NewLanes", "dispatch.TakeDue", "dispatch.ForgetBatch",
		"dispatch.LeaseJobs", "dispatch.MarkPublished", "dispatch.Release", "dispatch.StillTaken", "dispatch.PickProbe",
		"dispatch.TakeProbe", "dispatch.SkipProbe", "dispatch.CleanBatches", "dispatch.CountAll",
		"dispatch.CountExpiring", "dispatch.OldestDue", "dispatch.OldestErasure", "dispatch.Overdue",
		"dispatch.AbandonedClaims", "dispatch.UnresolvedOutcomes", "dispatch.LongEnqueued", "dispatch.StillEnqueued",
		"dispatch.ReturnLost", "dispatch.ErasedTasks", "dispatch.TasksRemoved",
		"breaker.Breaker",
		"process.ProcessStatuses", "process.ReportStatus", "process.WithdrawStatus",
		"outbox.Advance",
		"lane.Wake", "lane.WakeNamed", "lane.NewListener",
		"recipient.ReturnIntakes",
		"deadletter.DueReplays", "deadletter.WorkReplay", "deadletter.RetryDeadLetter", "deadletter.CleanEmailLetters",
		"deadletter.CleanBulkLetters", "deadletter.CleanReplays",
		"idempotency.CleanIdempotencyKeys",
		"feedback.CleanFeedback",
		"audit.CleanAudit",
		"retention.CleanRecipients", "retention.PurgeOutbox", "retention.EraseBodies", "retention.EraseCompanyBodies",
		"retention.PurgeLogs", "retention.PurgeCompanyLogs", "retention.PurgeEvents", "retention.PurgeAggregates",
		"retention.PurgeEntries", "retention.EraseEntryValues", "retention.EraseTemplates",
		"retention.EraseEntryHashes", "retention.EraseOutboxHashes", "retention.EraseRecipientHashes",
		"retention.DueFiles", "retention.MarkFilesDeleted", "retention.MakeLogPartition", "retention.DropLogPartition",
		"retention.CheckClock", "retention.MissingLogPartitions", "retention.OverdueLogPartitions",
		"tenant.Retentions",
		"mailing.RecoverMailings", "mailing.MailingsWithEntryAction", "mailing.ApplyEntryAction",
		"mailing.OpenMailings", "mailing.CountMailing", "mailing.FoldMailingFeedback", "mailing.MailingsWithFile",
		"mailing.SizeFiles", "mailing.CancelUnstarted", "mailing.CancelDiscarded",
		"quota.FoldQuotas", "quota.DueCounts", "quota.Count",
		"Confirm", "NewClock",
		"event.AssignPositions", "event.Lag", "event.Purge", "event.AddOfCompany",
		"reputation.SetDefaults", "reputation.Due", "reputation.Check", "reputation.CountPaused", "reputation.Clean",
		"usage.Newest", "usage.AddCompanies", "usage.Fold",
		"webhook.CleanDeliveries", "webhook.CleanReplays",
		"file.DeleteUnused", "file.Exist",
		"installation.Installation", "installation.ID",
	},
	"gateway_worker": {
		"outbox.NewAdvancer", "outbox.NewLoader", "outbox.Load", "outbox.ReadBody", "outbox.ReadFields",
		"outbox.SESMessageID", "outbox.Advance",
		"dispatch.DropTask", "dispatch.NoteDroppedTask", "dispatch.SkipProbe",
		"deadletter.DeadLetterTask",
		"mailing.MailingTemplates", "mailing.LockMailing", "mailing.HoldMailing", "mailing.CountLane",
		"mailing.NextEntries", "mailing.Expand", "mailing.FindMailingRoom", "mailing.FailJob",
		"breaker.Breaker", "breaker.OpenBreaker", "breaker.CloseBreaker", "breaker.RefusedKeys",
		"breaker.RefusalDisproved", "breaker.ForgetRefusals", "breaker.OpenBreakerByAccount",
		"breaker.CloseBreakerByAccount",
		"process.LiveProcesses", "process.ReportStatus", "process.WithdrawStatus",
		"lane.Wake", "lane.WakeLanes",
		"recipient.UpsertRecipients", "recipient.DeadLetterImport",
		"feedback.RecordFeedback", "feedback.recordGroup", // of its group
		"Confirm", "NewClock",
		"webhook.Count", "webhook.Head", "webhook.Due", "webhook.Behind", "webhook.Take", "webhook.Renew",
		"webhook.Release", "webhook.Load", "webhook.Record", "webhook.Read", "webhook.FindEvents", "webhook.CatchUp",
		"webhook.RecentlySuccessful", "webhook.ResetFailingSince", "webhook.ReplayFailed",
		"event.Read", "event.Find", "event.AddOfCompany",
		"file.Attachments", "file.MarkMissing", "file.ClearMissing",
		"installation.Installation", "installation.ID",
	},
	"gateway_operator": { // gatewayctl
		"tenant.ChangeCompany", "tenant.CreateCompany", "tenant.Companies", "tenant.Senders", "tenant.FindCompany",
		"tenant.SuspendCompany", "tenant.ResumeCompany", "tenant.CreateAPIKey", "tenant.RotateAPIKey",
		"tenant.RevokeAPIKey", "tenant.APIKeys", "tenant.AddSenderDomain", "tenant.RemoveSenderDomain",
		"tenant.SenderDomains", "tenant.DomainUsers", "tenant.AllowProgram", "tenant.RevokeProgram", "tenant.Programs",
		"tenant.ProgramRoles", "tenant.FindCaller", "tenant.SetRetention", "tenant.FindRetention",
		"emails.FindEmailDiagnosis", "emails.Timeline", "emails.ListEmails", "emails.CancelEmail",
		"emails.CancelEmails", "emails.ReplayEmail",
		"mailing.CancelMailingAs", "mailing.StalledMailings", "mailing.ListMailings",
		"lane.Wake", "lane.WakeLanes", "lane.Lanes", "lane.HoldLanes", "lane.ReleaseLanes",
		"process.ProcessStatuses",
		"breaker.Breaker", "breaker.HoldBreaker", "breaker.ReleaseBreaker",
		"deadletter.ListAllDeadLetters", "deadletter.ListDeadLetters", "deadletter.CountDeadLetters",
		"deadletter.FindAnyDeadLetter", "deadletter.RetryDeadLetterAs", "deadletter.DiscardDeadLetterAs",
		"deadletter.CreateReplayAs", "deadletter.FindAnyReplay",
		"audit.Audit", "audit.RecordReveal", "audit.Apply", "audit.ApplyAll", "audit.ApplyOne",
		"outbox.AdvanceFreeIn",
		"suppression.Suppressions", "suppression.SuppressAs", "suppression.UnsuppressAs",
		"Server", "SchemaVersion", "WorkersNeedKeys", "Pooled", "Confirm",
		"dispatch.CountBacklog", "dispatch.OldestDue", "dispatch.ServedQueues",
		"retention.MissingLogPartitions",
		"quota.SetQuotas", "quota.CompanyQuotas",
		"feedback.EventArrivals",
		"webhook.List", "webhook.Find", "webhook.DisableAs", "webhook.EnableAs",
		"reputation.Set", "reputation.Find", "reputation.Resume",
		"event.AddOfCompany",
		"usage.Month", "usage.Quotas",
		"installation.Installation", "installation.Detach", "process.AnyLive", "breaker.HoldIn", "webhook.DisableAllIn",
	},
	"gateway_privacy": { // gatewayctl person, gatewayctl encryption
		"tenant.FindCompany",
		"ReadClock",
		"person.Find", "person.TaxSample", "person.Rows", "person.EntriesOf", "person.Mailings", "person.Suppressions",
		"person.Answers", "person.Notifications", "person.Record", "person.BeginErasure", "person.SaveReceipt",
		"person.Receipts", "person.FinishErasure", "person.CountErasedTasks", "person.Writers",
		"person.EraseMailingSenders", "person.EraseOtherNotes", "person.EraseEmails", "person.EraseCopies",
		"person.EraseLetterCopies", "person.EraseEntries", "person.EraseDeadLetters", "person.EraseRecipients",
		"person.ClearSharedRecipients", "person.EraseSuppressions", "person.EraseReplays",
		"retention.MarkFilesDeleted",
		"audit.Record",
		"encryption.EncryptedValues", "encryption.Reencrypt", "encryption.KeptFiles", "encryption.FileKept",
		"encryption.RecordRotation",
		"webhook.Secrets", "webhook.Reencrypt",
		"file.DeleteErased", "file.ExportAttachments", "file.All", "file.Exist",
		"installation.Installation",
	},
	"gateway_program": {"outbox.EnqueueIn", "outbox.RescheduleIn", "outbox.CancelIn"}, // a tenant's own
}

var kinds = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}

// grant is what a role may do with a table.
type grant struct{ role, table, kind string }

// Each role may run every statement of its program, and has no privilege that none of them needs. EXPLAIN checks the privileges
// like an execution.
func TestRoles_HoldWhatTheirStatementsNeed(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	conn, err := d.SQL.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// With NULLs as parameters, a plan of their own may leave out tables, and with them their checks.
	execOn(t, conn, "SET plan_cache_mode = force_generic_plan")
	code := readSource(t)
	prepared := map[string]string{} // by constant: how to have it explained
	for _, role := range slices.Sorted(maps.Keys(callers)) {
		texts := code.statements(t, callers[role]...)
		for name, text := range texts {
			if _, done := prepared[name]; !done {
				prepared[name] = prepareOn(t, conn, name, text)
			}
		}
		check := func(table string, limit int) (refused []string) {
			for name, text := range texts {
				if prepared[name] == "" || !regexp.MustCompile(`\b`+table+`\b`).MatchString(text) {
					continue
				}
				if err := explainAs(t, conn, role, prepared[name]); err != nil {
					if refused = append(refused, name+": "+err.Error()); len(refused) == limit {
						break
					}
				}
			}
			return refused
		}
		for _, refused := range check(`\w*`, len(texts)) {
			t.Errorf("%s: %s", role, refused)
		}
		for _, g := range grantsOf(t, conn, role) {
			execOn(t, conn, fmt.Sprintf("REVOKE %s ON %s FROM %s", g.kind, g.table, role))
			if len(check(g.table, 1)) == 0 && !copies(texts, g) {
				t.Errorf("no statement of %s needs %s on %s", role, g.kind, g.table)
			}
			execOn(t, conn, fmt.Sprintf("GRANT %s ON %s TO %s", g.kind, g.table, role))
		}
	}
}

// prepareOn returns what executes the statement, or "" for what is a part of others, or
// a COPY, which cannot be prepared.
func prepareOn(t *testing.T, conn *sql.Conn, name, text string) string {
	t.Helper()
	if _, err := conn.ExecContext(t.Context(), `PREPARE "`+name+`" AS `+text); err != nil {
		var refused *pq.Error
		if errors.As(err, &refused) && refused.Code != pqerror.SyntaxError {
			t.Errorf("%s: %v", name, err)
		}
		return ""
	}
	var parameters int
	if err := conn.QueryRowContext(t.Context(), `SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = $1`, name).Scan(&parameters); err != nil {
		t.Fatal(err)
	}
	if parameters == 0 {
		return `"` + name + `"`
	}
	return `"` + name + `" (` + strings.TrimSuffix(strings.Repeat("NULL,", parameters), ",") + ")"
}

func explainAs(t *testing.T, conn *sql.Conn, role, execute string) error {
	t.Helper()
	execOn(t, conn, "SET ROLE "+role)
	defer execOn(t, conn, "RESET ROLE")
	_, err := conn.ExecContext(t.Context(), "EXPLAIN EXECUTE "+execute)
	return err
}

func execOn(t *testing.T, conn *sql.Conn, statement string) {
	t.Helper()
	if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func grantsOf(t *testing.T, conn *sql.Conn, role string) []grant {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), `
SELECT table_name, privilege_type FROM information_schema.role_table_grants
WHERE grantee = $1 AND table_schema = 'public' ORDER BY 1, 2`, role)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []grant
	for rows.Next() {
		g := grant{role: role}
		if err := rows.Scan(&g.table, &g.kind); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(kinds, g.kind) {
			t.Errorf("%s has %s on %s", role, g.kind, g.table)
		}
		all = append(all, g)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func copies(texts map[string]string, g grant) bool {
	for _, text := range texts {
		if g.kind == "INSERT" && strings.HasPrefix(strings.TrimSpace(text), "COPY "+g.table+" ") {
			return true
		}
	}
	return false
}

// No role changes or deletes an event of a timeline, and no program but the operator's
// tool makes companies or keys.
func TestRoles_Never(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	programs := []string{"gateway_api", "gateway_dispatcher", "gateway_worker"}
	for _, never := range []struct {
		roles       []string
		table, kind string
	}{
		{append(programs, "gateway_operator"), "email_events", "UPDATE"},
		{[]string{"gateway_api", "gateway_worker", "gateway_operator"}, "email_events", "DELETE"},
		{[]string{"gateway_api", "gateway_worker", "gateway_operator"}, "email_outbox", "DELETE"},
		{[]string{"gateway_api", "gateway_worker", "gateway_operator"}, "email_logs", "DELETE"},
		{[]string{"gateway_api", "gateway_worker", "gateway_operator"}, "recipients", "DELETE"},
		{append(programs, "gateway_operator"), "mailings", "DELETE"},
		{[]string{"gateway_privacy"}, "email_events", "UPDATE"}, // but for the column metadata
		{[]string{"gateway_privacy"}, "email_events", "DELETE"},
		{[]string{"gateway_privacy"}, "email_outbox", "INSERT"},
		{[]string{"gateway_privacy"}, "mailings", "DELETE"},
		{[]string{"gateway_privacy"}, "api_keys", "SELECT"},
		{append(programs, "gateway_operator"), "email_outbox", "TRUNCATE"},
		{programs, "companies", "INSERT"},
		{programs, "companies", "UPDATE"},
		{programs, "api_keys", "INSERT"},
		{programs, "api_keys", "UPDATE"},
		{programs, "sender_domains", "INSERT"},
		{[]string{"gateway_dispatcher", "gateway_worker"}, "api_keys", "SELECT"},
		{[]string{"gateway_api"}, "provider_gate", "UPDATE"},
		{[]string{"gateway_api"}, "process_status", "INSERT"},
		{[]string{"gateway_operator"}, "idempotency_keys", "SELECT"},
	} {
		for _, role := range never.roles {
			var may bool
			if err := d.SQL.QueryRowContext(t.Context(), `SELECT has_table_privilege($1, $2, $3)`, role, never.table, never.kind).Scan(&may); err != nil {
				t.Fatal(err)
			}
			if may {
				t.Errorf("%s may %s %s", role, never.kind, never.table)
			}
		}
	}
	for _, role := range append(programs, "gateway_operator") {
		var makes bool
		if err := d.SQL.QueryRowContext(t.Context(), `SELECT has_schema_privilege($1, 'public', 'CREATE')`, role).Scan(&makes); err != nil || makes {
			t.Errorf("%s may make tables (%v)", role, err)
		}
	}
}

// The map callers lists a program for every method of a Store, and for every method of the packages below that runs a
// statement.
func TestRoles_ListEveryMethod(t *testing.T) {
	t.Parallel()
	var all []string
	for _, methods := range callers {
		all = append(all, methods...)
	}
	for _, name := range methodsOf((*store.Store)(nil)) {
		// A method of an embedded type is listed with the name of its package.
		listed := slices.ContainsFunc(all, func(caller string) bool { return caller == name || strings.HasSuffix(caller, "."+name) })
		if !listed && !slices.Contains([]string{"Close", "Ping", "DB", "Unreplicated"}, name) {
			t.Errorf("the map callers lists no program for the method %s", name)
		}
	}
	code := readSource(t)
	for _, name := range code.public {
		found := map[string]string{}
		if code.follow(name, map[symbol]bool{}, found); len(found) == 0 {
			continue
		}
		if caller := name.in + "." + strings.TrimPrefix(name.name, "."); !slices.Contains(all, caller) {
			t.Errorf("the map callers lists no program for %s, which runs a statement", caller)
		}
	}
}
