package store_test

import (
	"errors"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/schema"
	"email-gateway/shared/store/storetest"
)

// Reasons for which a statement of the api need not name the company of a table.
const (
	byMovedEmail  = "the row of an email whose company the caller has compared: by its id, with which every row about it is found"
	byLockedRow   = "a row that this transaction has locked before, by id and company, or has written itself"
	byOwnID       = "a row of the id that the api has just made: it asks whether its own COMMIT arrived, or is cleaning up behind itself"
	byListedIDs   = "ids that a statement before it listed for the company, and the company's rows alone"
	byFoundLetter = "the dead letter was found by id and company (findLetterSQL), and by its id, outbox id or mailing is what it is about"
	byCompanyLane = "a lane is one company's, and the lane is asked for by company_id"
	bySESTags     = "SES names the email and its company; without an email of this id and company, nothing is changed"
	byRecipientID = "a recipient's id is made from its company's id (RecipientID), and only whether there is one is asked; email_gateway_mark_intake runs before each insert"
	byKey         = "the status of the email that the company's own key names (outbox_aggregates, which is asked for company_id)"
	workersOnly   = "a worker runs it, for the email of its task; the api has a field of the method's name"
	byNoRoute     = "it returns only whether the storage has a file of any company, and whether there is one"
	operatorsOnly = "no route of the api runs it: operators list all companies' rows, by a method that the api's callers share in part"
)

// acrossCompanies are the places in which a statement of the api does not ask a table for
// the company, with the reason why no other company's row gets out or is changed. A place
// that is none any more fails the test.
var acrossCompanies = map[string]string{
	"sql.Advance: email_outbox o":                                          byMovedEmail,
	"sql.Advance: email_logs email_logs":                                   byMovedEmail,
	"sql.Advance: dead_letters d":                                          byMovedEmail,
	"sql.Advance: outbox_aggregates a":                                     byMovedEmail,
	"sql.Advance: outbox_aggregates later":                                 byMovedEmail,
	"sql.Advance: dispatch_lanes lane":                                     byMovedEmail,
	"sql.Advance: mailings m":                                              byMovedEmail,
	"sql.Advance: mailings mailings":                                       byMovedEmail,
	"sql.AdvancePlain: email_outbox o":                                     byMovedEmail,
	"sql.AdvancePlain: email_logs email_logs":                              byMovedEmail,
	"sql.AdvancePlain: dead_letters d":                                     byMovedEmail,
	"sql.AdvancePlain: dispatch_lanes lane":                                byMovedEmail,
	"sql.AdvancePlain: mailings mailings":                                  byMovedEmail,
	"outbox.rescheduleSQL: dispatch_lanes l":                               byMovedEmail,
	"outbox.rescheduleSQL: email_logs email_logs":                          byMovedEmail,
	"outbox.rescheduleSQL: email_logs l":                                   byMovedEmail,
	"outbox.rescheduleSQL: email_outbox o":                                 byMovedEmail,
	"sql.AdvanceWaiting: email_outbox o":                                   byMovedEmail,
	"sql.AdvanceWaiting: email_logs email_logs":                            byMovedEmail,
	"sql.AdvanceWaiting: dead_letters d":                                   byMovedEmail,
	"sql.AdvanceWaiting: outbox_aggregates a":                              byMovedEmail,
	"sql.AdvanceWaiting: outbox_aggregates later":                          byMovedEmail,
	"sql.AdvanceWaiting: dispatch_lanes lane":                              byMovedEmail,
	"sql.AdvanceWaiting: mailings m":                                       byMovedEmail,
	"sql.AdvanceWaiting: mailings mailings":                                byMovedEmail,
	"emails.pageRowsSQL: email_logs l":                                     byListedIDs,
	"emails.pageRowsSQL: email_outbox o":                                   byListedIDs,
	"emails.pageRowsSQL: outbox_aggregates a":                              byListedIDs,
	"deadletter.listLettersSQL: dead_letters d":                            byListedIDs,
	"emails.findEmailSQL: outbox_aggregates a":                             byListedIDs,
	"mailing.cancelMailingSQL: mailings mailings":                          byLockedRow,
	"mailing.continueMailingSQL: mailings mailings":                        byLockedRow,
	"mailing.finishMailingSQL: mailings mailings":                          byLockedRow,
	"mailing.movePausedSQL: mailings mailings":                             byLockedRow,
	"mailing.moveWaitingSQL: mailings mailings":                            byLockedRow,
	"mailing.pauseMailingSQL: mailings mailings":                           byLockedRow,
	"mailing.requeueMailingSQL: mailings mailings":                         byLockedRow,
	"mailing.retryFailedSQL: mailings mailings":                            byLockedRow,
	"deadletter.discardLettersSQL: dead_letters dead_letters":              byFoundLetter,
	"mailing.resolveMailingLettersSQL: dead_letters dead_letters":          byFoundLetter,
	"deadletter.retryIntakeSQL: dead_letters d":                            byFoundLetter,
	"deadletter.retryIntakeSQL: email_outbox o":                            byFoundLetter,
	"deadletter.retryIntakeSQL: recipients r":                              byFoundLetter,
	"outbox.existsSQL: email_outbox email_outbox":                          byOwnID,
	"mailing.mailingExistsSQL: mailings mailings":                          byOwnID,
	"deadletter.findAnyReplaySQL: dead_letter_replays dead_letter_replays": byOwnID,
	"emails.searchIDsSQL: email_outbox email_outbox":                       byCompanyLane,
	"emails.taggedIDsSQL: email_outbox email_outbox":                       byCompanyLane,
	"emails.waitingIDsSQL: email_outbox email_outbox":                      byCompanyLane,
	"sql.ReadFeedback: dispatch_lanes lane":                                bySESTags,
	"outbox.sentIDSQL: email_logs email_logs":                              workersOnly,
	"sql.TakeFeedback: email_logs email_logs":                              bySESTags,
	"sql.TakeFeedback: email_outbox o":                                     bySESTags,
	"sql.ReadFeedback: email_logs email_logs":                              bySESTags,
	"sql.TakeFreeFeedback: email_logs email_logs":                          bySESTags,
	"sql.TakeFreeFeedback: email_logs l":                                   bySESTags,
	"sql.TakeFreeFeedback: email_outbox o":                                 bySESTags,
	"sql.ReadFeedback: email_outbox o":                                     bySESTags,
	"sql.AppendFeedback: email_logs email_logs":                            bySESTags,
	"sql.AppendFeedback: email_logs l":                                     bySESTags,
	"sql.AppendFeedback: email_outbox o":                                   bySESTags,
	"deadletter.countAllLettersSQL: dead_letters dead_letters":             operatorsOnly,
	"installation.compareSQL: stored_files f":                              byNoRoute,
	"installation.compareSQL: stored_files listed":                         byNoRoute,
	"installation.compareSQL: mailings m":                                  byNoRoute,
	"installation.compareSQL: mailings kept":                               byNoRoute,
}

// Every statement that the api may run names the company in each table that has a
// company_id, as a condition or as the value that it writes, or is listed above with its
// reason. Postgres itself parses the statements, so the test finds every table that they use.
func TestTenancy_StatementsNameTheCompany(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	r := newTreeReader(t, d)
	code := readSource(t)
	if inline := code.inline(t); len(inline) > 0 {
		t.Errorf("statements that no constant holds, so that this test does not see them: %q", inline)
	}
	found := map[string]bool{}
	for name, text := range code.statements(t, callers["gateway_api"]...) {
		for _, place := range r.unboundOf(t, name, text) {
			found[name+": "+place] = true
		}
	}
	for _, place := range slices.Sorted(maps.Keys(found)) {
		if acrossCompanies[place] == "" {
			t.Errorf("%s is not bound to a company", place)
		}
	}
	for _, place := range slices.Sorted(maps.Keys(acrossCompanies)) {
		if !found[place] {
			t.Errorf("%s is an exception and does not need to be one", place)
		}
	}
}

var copyInto = regexp.MustCompile(`^\s*COPY (\w+) \(([^)]*)\)`)

// unboundOf lists the tables that a statement does not bind to a company.
func (r *treeReader) unboundOf(t *testing.T, name, text string) []string {
	t.Helper()
	if copied := copyInto.FindStringSubmatch(text); copied != nil { // it cannot be prepared
		if slices.Contains(slices.Collect(maps.Values(r.names)), copied[1]) && !strings.Contains(copied[2], "company_id") {
			return []string{copied[1]}
		}
		return nil
	}
	trees, err := r.trees(t, `PREPARE "`+name+`" AS `+text)
	var refused *pq.Error
	switch {
	case errors.As(err, &refused) && refused.Code == pqerror.SyntaxError: // a part of others
		return nil
	case err != nil || len(trees) == 0:
		t.Errorf("%s: %d trees, %v", name, len(trees), err)
	}
	return r.unbound(trees)
}

// What the test above takes for bound, and what not.
func TestTenancy_FindsUnboundTables(t *testing.T) {
	t.Parallel()
	r := newTreeReader(t, storetest.New(t))
	const outbox, logs = "email_outbox", "email_logs"
	for text, want := range map[string][]string{
		`SELECT id FROM email_outbox WHERE id = $1`:                                                                                                                                  {outbox},
		`SELECT id FROM email_outbox WHERE company_id = $1`:                                                                                                                          nil,
		`SELECT id FROM email_outbox WHERE $1::uuid = company_id AND id = $2`:                                                                                                        nil,
		`SELECT id FROM email_outbox WHERE company_id = ANY ($1::uuid[])`:                                                                                                            nil,
		`SELECT id FROM email_outbox WHERE company_id <> $1`:                                                                                                                         {outbox},
		`SELECT id FROM email_outbox WHERE company_id = $1 OR id = $2`:                                                                                                               {outbox},
		`SELECT id FROM email_outbox WHERE NOT (company_id = $1)`:                                                                                                                    {outbox},
		`SELECT id FROM email_outbox WHERE company_id = company_id`:                                                                                                                  {outbox},
		`SELECT company_id = $1::uuid FROM email_outbox`:                                                                                                                             {outbox},
		`SELECT id FROM email_outbox WHERE ($1::uuid IS NULL OR company_id = $1)`:                                                                                                    {outbox},
		`SELECT o.id FROM email_outbox o JOIN email_logs l ON l.outbox_id = o.id WHERE o.company_id = $1`:                                                                            {logs + " l"},
		`SELECT o.id FROM email_outbox o JOIN email_logs l USING (company_id) WHERE o.company_id = $1`:                                                                               nil,
		`SELECT o.id FROM email_outbox o JOIN email_logs l USING (company_id)`:                                                                                                       {logs + " l", outbox + " o"},
		`SELECT o.id FROM email_outbox o LEFT JOIN email_logs l ON l.outbox_id = o.id AND o.company_id = $1 AND l.company_id = $1`:                                                   {outbox + " o"},
		`SELECT o.id FROM email_outbox o RIGHT JOIN email_logs l ON l.outbox_id = o.id AND o.company_id = $1 AND l.company_id = $1`:                                                  {logs + " l"},
		`SELECT EXISTS (SELECT FROM email_logs WHERE outbox_id = o.id) FROM email_outbox o WHERE o.company_id = $1`:                                                                  {logs},
		`SELECT EXISTS (SELECT FROM email_logs l WHERE l.company_id = o.company_id) FROM email_outbox o WHERE o.company_id = $1`:                                                     nil,
		`WITH m AS (UPDATE email_outbox SET status = 'SENT' WHERE id = $1 RETURNING id) SELECT * FROM m`:                                                                             {outbox},
		`DELETE FROM suppressions WHERE address = $1`:                                                                                                                                {"suppressions"},
		`DELETE FROM suppressions WHERE (company_id, address) = ($1, $2)`:                                                                                                            nil,
		`DELETE FROM suppressions WHERE (company_id = $1) IS TRUE`:                                                                                                                   nil,
		`INSERT INTO suppressions (company_id, address, reason) VALUES ($1, $2, 'MANUAL')`:                                                                                           nil,
		`INSERT INTO dead_letters (id, target, reason, payload) VALUES ($1, $2, $3, $4)`:                                                                                             {"dead_letters"},
		`INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET email = excluded.email`:                                                   {"recipients"},
		`INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING`:                                                                             nil,
		`INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET email = excluded.email WHERE recipients.company_id = excluded.company_id`: nil,
		`INSERT INTO suppressions (company_id, address, reason) VALUES ($1, $2, 'MANUAL') ON CONFLICT (company_id, address, reason) DO UPDATE SET note = 'x'`:                        nil,
		`SELECT count(*) FROM companies`:                                                                                                                                             nil,
	} {
		for i, place := range want {
			if !strings.Contains(place, " ") {
				want[i] = place + " " + place
			}
		}
		if got := r.unboundOf(t, uuid.NewString(), text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// functionCalls run the functions that the api's role may call, and those that triggers run for
// what it writes, so that each statement of theirs is read. Those that use no table with a
// company_id need none.
var functionCalls = map[string][]string{
	"email_gateway_count_added_emails": {`
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, sender, html, html_sha256, checker_version, priority, delivery, next_at, expires_at, payload)
		SELECT gen_random_uuid(), company_id, lane_id, request_id, sender, html, html_sha256, checker_version, priority, delivery, next_at, expires_at, payload
		FROM email_outbox WHERE company_id = $company LIMIT 1`},
	"email_gateway_count_changed_email":      {`UPDATE email_outbox SET html = html || 'x' WHERE company_id = $company`},
	"email_gateway_count_gone_emails":        {`DELETE FROM email_outbox WHERE company_id = $company`},
	"email_gateway_count_added_recipients":   {addRecipient},
	"email_gateway_count_changed_recipient":  {addRecipient, `UPDATE recipients SET deleted_at = now() WHERE company_id = $company`},
	"email_gateway_count_gone_recipients":    {addRecipient, `DELETE FROM recipients WHERE company_id = $company`},
	"email_gateway_mark_intake":              {addIntake},
	"email_gateway_count_added_intakes":      {addIntake},
	"email_gateway_count_gone_intakes":       {addIntake, `DELETE FROM recipient_intakes WHERE company_id = $company`},
	"email_gateway_count_added_suppressions": {addSuppression},
	"email_gateway_count_gone_suppressions":  {addSuppression, `DELETE FROM suppressions WHERE company_id = $company`},
	"email_gateway_count_files": {
		`INSERT INTO stored_files (id, company_id, sha256, size, bytes, media_type) VALUES (gen_random_uuid(), $company, sha256('a'), 1, 1, 'text/plain')`,
	},
	"email_gateway_feed_events": {`
		WITH log AS (
			INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, event_seq, last_event)
			SELECT id, company_id, 'ana@example.com', 's', 'PENDING', 0, 'r', now(), now(), 1, 'RECEIVED' FROM email_outbox WHERE company_id = $company
			RETURNING outbox_id)
		INSERT INTO email_events (email_log_id, seq, type, created_at) SELECT outbox_id, 1, 'RECEIVED', now() FROM log`, `
		WITH log AS (
			INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, event_seq, last_event)
			VALUES (gen_random_uuid(), $company, 'ana@example.com', 's', 'PENDING', 0, 'r', now(), now(), 1, 'RECEIVED')
			RETURNING outbox_id)
		INSERT INTO email_events (email_log_id, seq, type, created_at) SELECT outbox_id, 1, 'RECEIVED', now() FROM log`},
	"email_gateway_count_templates": {addMailing, `UPDATE mailings SET html = html || 'x' WHERE company_id = $company`, `DELETE FROM mailings WHERE company_id = $company`},
	"email_gateway_drop_attachments": {
		addMailing, `UPDATE mailings SET attachments = 1 WHERE company_id = $company`, `DELETE FROM mailings WHERE company_id = $company`,
	},
	"email_gateway_record_delivery": {
		`INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, sent_at, event_seq, last_event)
			VALUES ('01990000-0000-7000-8000-000000000001', $company, 'ana@example.com', 's', 'SENT', 1, 'r', now(), now(), now(), 4, 'SENT')`,
		`INSERT INTO ses_events (sns_message_id, kind, outbox_id) SELECT k, k, '01990000-0000-7000-8000-000000000001' FROM unnest('{Delivery,Bounce}'::text[]) k`,
		`UPDATE ses_events SET applied_at = now()`,
	},
	"email_gateway_record_reputation": {
		`INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, sent_at, event_seq, last_event)
			VALUES ('01990000-0000-7000-8000-000000000002', $company, 'ana@example.com', 's', 'SENT', 1, 'r', now(), now(), now(), 4, 'SENT')`,
		`INSERT INTO ses_events (sns_message_id, kind, outbox_id, payload) VALUES ('complaint', 'Complaint', '01990000-0000-7000-8000-000000000002', '{}')`,
		`UPDATE ses_events SET applied_at = now() WHERE sns_message_id = 'complaint'`,
	},
	"email_gateway_take_key": {
		`SELECT email_gateway_take_key($company, 'interview', '42', 'REMINDER', gen_random_uuid())`,
		`SELECT email_gateway_take_key($company, 'interview', '42', 'REMINDER', gen_random_uuid())`,
	},
	"email_gateway_scheduled":         {`SELECT email_gateway_scheduled($company)`},
	"email_gateway_scheduled_page":    {`SELECT email_gateway_scheduled_page($company, gen_random_uuid(), 10, 0, NULL, NULL)`},
	"email_gateway_count_scheduled":   {`SELECT email_gateway_count_scheduled($company, 0)`},
	"email_gateway_recount_scheduled": {`SELECT email_gateway_recount_scheduled($company, '0')`},
	"email_gateway_use":               {`SELECT * FROM email_gateway_use($company, true)`},
	"email_gateway_schedule":          {`SELECT email_gateway_schedule($company, gen_random_uuid(), now() + interval '1 hour')`},
}

const (
	addMailing = `INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256, checker_version, fields, sender,
			status, total_lines, processed_lines, accepted, invalid, duplicates)
		VALUES (gen_random_uuid(), $company, 'r', gen_random_uuid()::text, 'file:///a', sha256('a'), sha256('b'), '', 's', '<p>', sha256('c'), 1, '{}', 'a@acme.example', 'CANCELLED', 0, 0, 0, 0, 0)`
	addRecipient = `INSERT INTO recipients (id, company_id, external_id, email)
		VALUES (gen_random_uuid(), $company, gen_random_uuid()::text, 'ana@example.com')`
	addIntake = `INSERT INTO recipient_intakes (recipient_id, outbox_id, company_id, email)
		VALUES (gen_random_uuid(), gen_random_uuid(), $company, 'ana@example.com')`
	addSuppression = `INSERT INTO suppressions (company_id, address, reason) VALUES ($company, gen_random_uuid() || '@example.com', 'MANUAL')`
)

var functionsAcrossCompanies = map[string]string{
	"email_gateway_record_delivery: email_logs l":            bySESTags,
	"email_gateway_record_delivery: email_outbox o":          bySESTags,
	"email_gateway_record_reputation: email_logs l":          bySESTags,
	"email_gateway_record_reputation: email_outbox o":        bySESTags, // of the other trigger of the same statement
	"email_gateway_take_key: email_outbox o":                 byKey,
	"email_gateway_take_key: email_logs l":                   byKey,
	"email_gateway_mark_intake: recipients r":                byRecipientID,
	"email_gateway_mark_intake: recipient_intakes i":         byRecipientID,
	"email_gateway_count_added_intakes: recipients r":        byRecipientID,
	"email_gateway_count_added_intakes: recipient_intakes i": byRecipientID,
	"email_gateway_count_gone_intakes: recipients r":         byRecipientID,
	"email_gateway_count_gone_intakes: recipient_intakes i":  byRecipientID,
	"email_gateway_feed_events: email_outbox o":              "the trigger reads the email of the event that its statement has inserted, to learn the company",
	"email_gateway_feed_events: email_logs l":                "the same where the email is deleted and its log is not",
}

// The functions that the api's role may execute, and those of triggers, are held to the same.
func TestTenancy_FunctionsNameTheCompany(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	r := newTreeReader(t, d)
	company := d.Company(t)
	d.Accept(t, company, nil)
	found := map[string]bool{}
	for name, source := range r.functions(t, "gateway_api") {
		tables := r.named(source)
		calls := functionCalls[name]
		if len(tables) > 0 && len(calls) == 0 {
			t.Errorf("%s uses %q: add calls that run each of its statements", name, tables)
		}
		for _, call := range calls {
			execOn(t, r.conn, "DISCARD PLANS") // a trigger's statement that was run before is read again
			trees, err := r.trees(t, strings.ReplaceAll(call, "$company", "'"+company.String()+"'"))
			if err != nil {
				t.Errorf("%s: %v", call, err)
			}
			for _, place := range r.unbound(trees) {
				found[name+": "+place] = true
			}
			tables = slices.DeleteFunc(tables, func(table string) bool { return r.mentions(trees, table) })
		}
		if len(tables) > 0 {
			t.Errorf("no call of %s reads or writes %q", name, tables)
		}
	}
	for _, place := range slices.Sorted(maps.Keys(found)) {
		if functionsAcrossCompanies[place] == "" {
			t.Errorf("%s is not bound to a company", place)
		}
	}
	for _, place := range slices.Sorted(maps.Keys(functionsAcrossCompanies)) {
		if !found[place] {
			t.Errorf("%s is an exception and does not need to be one", place)
		}
	}
}

// inline are statements in a function instead of a constant.
func (s source) inline(tb testing.TB) (found []string) {
	tb.Helper()
	for _, body := range s.bodies {
		ast.Inspect(body, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok {
				if value, err := strconv.Unquote(text.Value); err == nil && begins.MatchString(value) {
					found = append(found, value)
				}
			}
			return true
		})
	}
	return found
}
