package store_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/suppression"
)

// report is a notification about an email's delivery.
type report struct {
	kind   string
	state  email.DeliveryState
	minute int // when it happened
	reason string
}

var reports = []report{
	{"DeliveryDelay", email.DeliveryDelayed, 1, "TransientCommunicationFailure"},
	{"Delivery", email.DeliveryDone, 3, ""},
	{"Delivery", email.DeliveryDone, 2, ""},
	{"Reject", email.DeliveryRejected, 2, "Bad content"},
	{"Bounce", email.DeliveryBounced, 4, "Permanent/General"},
	{"Complaint", email.DeliveryComplained, 5, "abuse"},
}

// automatic is the reason of an automatic reply, which is no problem of an email that was delivered.
const automatic = "Transient/General"

// repliedReports are the reports of an email that got an out-of-office reply.
var repliedReports = []report{
	{"DeliveryDelay", email.DeliveryDelayed, 1, "TransientCommunicationFailure"},
	{"Delivery", email.DeliveryDone, 2, ""},
	{"Bounce", email.DeliveryBounced, 3, automatic},
	{"Bounce", email.DeliveryBounced, 4, "Permanent/General"},
	{"Bounce", email.DeliveryBounced, 5, automatic},
}

// expectedOf returns the state after the reports, which does not depend on their order.
func expectedOf(recorded []report, start time.Time) string {
	last := recorded[0]
	for _, r := range recorded[1:] {
		rank := func(r report) int {
			if r.reason == automatic {
				return slices.Index(email.DeliveryStates(), email.DeliveryDelayed)*10 + 5
			}
			return slices.Index(email.DeliveryStates(), r.state) * 10
		}
		if rank(r) > rank(last) || rank(r) == rank(last) && r.minute < last.minute {
			last = r
		}
	}
	return fmt.Sprint(last.state, " ", start.Add(time.Duration(last.minute)*time.Minute).UTC().Format(time.RFC3339), " ", last.reason)
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}

// Every order of the reports, each recorded twice, stopped after each of them: the state is that of the
// set, so no report takes an email back to a lower state. The mailing's counts follow.
func TestDelivery_EveryOrder(t *testing.T) {
	t.Parallel()
	t.Run("all kinds", func(t *testing.T) { checkEveryOrder(t, reports) })
	t.Run("automatic replies", func(t *testing.T) { checkEveryOrder(t, repliedReports) })
}

func checkEveryOrder(t *testing.T, reports []report) {
	t.Helper()
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	orders := permutations(len(reports))
	mailing := d.Mailing(t, company, len(orders)*len(reports), nil)
	run(t, d, `INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, sent_at, event_seq, last_event)
		SELECT id, $2, email, 's', 'SENT', 1, 'r', now(), now(), now(), 4, 'SENT' FROM mailing_entries WHERE mailing_id = $1`, mailing, company)
	ids := ask[pq.StringArray](t, d, `SELECT array_agg(id::text ORDER BY id) FROM mailing_entries WHERE mailing_id = $1`, mailing)
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	want := map[string]string{}
	counts := map[email.DeliveryState]int{}
	var messages, kinds, of, at, payloads []string
	for i, order := range orders {
		for n := range order {
			id := ids[i*len(reports)+n]
			var recorded []report
			for step, which := range order[:n+1] {
				r := reports[which]
				recorded = append(recorded, r)
				for again := range 2 {
					messages = append(messages, fmt.Sprintf("%05d-%d-%d-%d", i, n, step, again))
					kinds, of, at = append(kinds, r.kind), append(of, id), append(at, start.Add(time.Duration(r.minute)*time.Minute).Format(time.RFC3339))
					payloads = append(payloads, payloadOf(r))
				}
			}
			want[id] = expectedOf(recorded, start)
			counts[email.DeliveryState(strings.Fields(want[id])[0])]++
		}
	}
	run(t, d, `INSERT INTO ses_events (sns_message_id, kind, outbox_id, occurred_at, payload)
		SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::timestamptz[], $5::jsonb[])`,
		pq.Array(messages), pq.Array(kinds), pq.Array(of), pq.Array(at), pq.Array(payloads))
	run(t, d, `DO $$
		DECLARE m text;
		BEGIN
			FOR m IN SELECT sns_message_id FROM ses_events ORDER BY 1 LOOP
				UPDATE ses_events SET applied_at = now() WHERE sns_message_id = m;
			END LOOP;
		END $$`)
	wrong, filter, listed := 0, emails.Filter{Limit: 1000}, 0
	for {
		page, err := d.Store.ListEmails(t.Context(), company, filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Emails {
			listed++
			reason := ""
			if e.DeliveryReason != nil {
				reason = *e.DeliveryReason
			}
			got := fmt.Sprint(*e.Delivery, " ", e.DeliveryAt.UTC().Format(time.RFC3339), " ", reason)
			if got != want[e.ID.String()] {
				if wrong++; wrong < 5 {
					t.Errorf("%s: %s, want %s", e.ID, got, want[e.ID.String()])
				}
			}
		}
		if filter.Before = page.Next; page.Next == uuid.Nil {
			break
		}
	}
	if wrong > 0 || listed != len(want) {
		t.Errorf("%d of %d emails are wrong", wrong, listed)
	}
	if n, err := d.Store.FoldMailingFeedback(t.Context()); err != nil || n != 1 {
		t.Errorf("%d mailings, %v", n, err)
	}
	m, err := d.Store.FindMailing(t.Context(), company, mailing)
	if err != nil || m.Delivered != counts[email.DeliveryDone] || m.Bounced != counts[email.DeliveryBounced] || m.Complained != counts[email.DeliveryComplained] {
		t.Errorf("%d delivered, %d bounced, %d complained, want %v, %v", m.Delivered, m.Bounced, m.Complained, counts, err)
	}
}

func payloadOf(r report) string {
	key := map[string]string{"DeliveryDelay": "delayType", "Reject": "reason", "Complaint": "complaintFeedbackType"}[r.kind]
	switch {
	case r.kind == "Bounce":
		kind, subtype, _ := strings.Cut(r.reason, "/")
		return fmt.Sprintf(`{"bounceType": %q, "bounceSubType": %q}`, kind, subtype)
	case key != "":
		return fmt.Sprintf(`{%q: %q}`, key, r.reason)
	}
	return `{}`
}

// deliveryOf is an email's delivery with its reason.
func deliveryOf(t *testing.T, d storetest.Database, company, id uuid.UUID) string {
	t.Helper()
	e, err := d.Store.FindEmail(t.Context(), company, id)
	if err != nil {
		t.Fatal(err)
	}
	if e.Delivery == nil {
		return ""
	}
	if e.DeliveryReason != nil {
		return string(*e.Delivery) + " " + *e.DeliveryReason
	}
	return string(*e.Delivery)
}

// There is no delivery state before the provider has accepted the email, a notification that is none
// of ours changes none, and one that is recorded again changes nothing.
func TestDelivery_OfAnEmail(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, token := d.Accept(t, company, nil), uuid.New()
	check := func(after, want string) {
		t.Helper()
		if got := deliveryOf(t, d, company, id); got != want {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
	check("its acceptance", "")
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"))
	check("its claim", "")
	storetest.Apply(t, d, storetest.SentOf(id, token))
	check("it was sent", "pending")
	bounce := deliveryReport(company, id, token, func(f *feedback.Feedback) {
		f.Kind, f.Event = "Bounce", email.EventBounced
		f.Masked = map[string]any{"bounceType": "Permanent", "bounceSubType": "NoEmail", "recipients": []map[string]string{
			{"address": "a***@e***.com", "diagnosticCode": "smtp; 550 5.1.1 a***@e***.com unknown"},
		}}
	})
	foreign := bounce
	foreign.NotificationID, foreign.CompanyID = uuid.NewString(), uuid.New()
	recordFeedback(t, d, foreign)
	check("a bounce of another company's email", "pending")
	recordFeedback(t, d, deliveryReport(company, id, token, nil))
	check("a delivery", "delivered")
	recordFeedback(t, d, deliveryReport(company, id, token, func(f *feedback.Feedback) {
		f.Kind, f.Event, f.Masked = "Complaint", email.EventComplained, map[string]any{"complaintFeedbackType": "not-spam"}
	}))
	check("not-spam", "delivered")
	const bounced = "bounced Permanent/NoEmail: smtp; 550 5.1.1 a***@e***.com unknown"
	recordFeedback(t, d, bounce)
	check("a bounce", bounced)
	recordFeedback(t, d, bounce)
	recordFeedback(t, d, deliveryReport(company, id, token, nil))
	check("both again", bounced)
	run(t, d, `UPDATE email_logs SET recipient = $2, delivery_problem_reason = NULL WHERE outbox_id = $1`, id, recipient.ErasedAddress)
	recordFeedback(t, d, deliveryReport(company, id, token, func(f *feedback.Feedback) {
		f.Kind, f.Event, f.Masked = "Complaint", email.EventComplained, bounce.Masked
	}))
	check("a complaint of an erased person", "complained")
}

// With several recipients, a bounce that may be an automatic reply may also be that of one who did not get the email.
func TestDelivery_ReplyOfOneOfSeveral(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for _, order := range [][]string{{"Delivery", "Bounce"}, {"Bounce", "Delivery"}} {
		for _, test := range []struct {
			change func(*outbox.NewEmail)
			want   string
		}{
			{nil, "delivered"},
			{func(e *outbox.NewEmail) { e.Job.CC = []string{"rui@example.com"} }, "bounced " + automatic},
			{func(e *outbox.NewEmail) { e.Job.BCC = []string{"rui@example.com"} }, "bounced " + automatic},
		} {
			id, token := d.Accept(t, company, test.change), uuid.New()
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.SentOf(id, token))
			for _, kind := range order {
				recordFeedback(t, d, deliveryReport(company, id, token, func(f *feedback.Feedback) {
					if f.Kind = kind; kind == "Bounce" {
						f.Event, f.Masked = email.EventBounced, map[string]any{"bounceType": "Transient", "bounceSubType": "General"}
					}
				}))
			}
			if got := deliveryOf(t, d, company, id); got != test.want {
				t.Errorf("%v: %q, want %q", order, got, test.want)
			}
		}
	}
}

// Filters, alone and together; a list of another company has none of it.
func TestListEmails_ByDelivery(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	names := map[uuid.UUID]string{}
	send := func(name string, kinds ...string) uuid.UUID {
		id, token := d.Accept(t, company, func(e *outbox.NewEmail) { e.Job.Tags = []string{name} }), uuid.New()
		names[id] = name
		storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.SentOf(id, token))
		for _, kind := range kinds {
			recordFeedback(t, d, deliveryReport(company, id, token, func(f *feedback.Feedback) {
				f.Kind = kind
				f.Event = map[string]email.EventType{"Delivery": email.EventDelivered, "Bounce": email.EventBounced, "DeliveryDelay": email.EventDeliveryDelayed}[kind]
			}))
		}
		return id
	}
	old := send("old", "Bounce")
	run(t, d, `UPDATE email_events SET created_at = created_at - interval '2 hours' WHERE email_log_id = $1`, old)
	run(t, d, `UPDATE email_outbox SET created_at = created_at - interval '2 hours' WHERE id = $1`, old)
	run(t, d, `UPDATE email_logs SET created_at = created_at - interval '2 hours' WHERE outbox_id = $1`, old)
	send("pending")
	send("delivered", "DeliveryDelay", "Delivery")
	send("delayed", "DeliveryDelay")
	send("bounced", "Delivery", "Bounce")
	names[d.Accept(t, company, nil)] = "waiting"
	list := func(company uuid.UUID, f emails.Filter) string {
		t.Helper()
		var found []string
		for {
			f.Limit = 2
			page, err := d.Store.ListEmails(t.Context(), company, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Emails {
				found = append(found, names[e.ID])
			}
			if f.Before = page.Next; page.Next == uuid.Nil {
				slices.Sort(found)
				return strings.Join(found, " ")
			}
		}
	}
	hour := time.Now().Add(-time.Hour)
	for _, tt := range []struct {
		filter emails.Filter
		want   string
	}{
		{emails.Filter{Delivery: email.DeliveryPending}, "pending"},
		{emails.Filter{Delivery: email.DeliveryDone}, "delivered"},
		{emails.Filter{Delivery: email.DeliveryDelayed}, "delayed"},
		{emails.Filter{Delivery: email.DeliveryBounced}, "bounced old"},
		{emails.Filter{Delivery: email.DeliveryComplained}, ""},
		{emails.Filter{Delivery: email.DeliveryBounced, UpdatedAfter: hour}, "bounced"},
		{emails.Filter{Delivery: email.DeliveryBounced, Tag: "old"}, "old"},
		{emails.Filter{Delivery: email.DeliveryPending, Status: email.Sent}, "pending"},
		{emails.Filter{Delivery: email.DeliveryBounced, Recipient: "ana@example.com"}, "bounced old"},
		{emails.Filter{UpdatedAfter: hour}, "bounced delayed delivered pending waiting"},
		{emails.Filter{UpdatedAfter: hour, Status: email.Pending}, "waiting"},
		{emails.Filter{UpdatedAfter: time.Now().Add(time.Hour)}, ""},
	} {
		if got := list(company, tt.filter); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.filter, got, tt.want)
		}
		if got := list(d.Company(t), tt.filter); got != "" {
			t.Errorf("%+v: the list of another company has %s", tt.filter, got)
		}
	}
	// The delivery of an email changes long after its acceptance.
	run(t, d, `UPDATE email_events SET created_at = now() WHERE email_log_id = $1 AND type = 'BOUNCED'`, old)
	if got := list(company, emails.Filter{Delivery: email.DeliveryBounced, UpdatedAfter: hour}); got != "bounced old" {
		t.Errorf("a late bounce: %s", got)
	}
}

// A mailing whose row is locked keeps its changes, and delays no other mailing. Unsubscribing counts
// once for each address, however often the link is used.
func TestFoldMailingFeedback(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	locked, free := d.Mailing(t, company, 1, nil), d.Mailing(t, company, 1, nil)
	for _, m := range []uuid.UUID{locked, free} {
		for range 2 {
			if err := d.Store.Suppress(t.Context(), company, suppression.Suppression{Address: "ana-" + m.String() + "@example.com", Reason: suppression.Unsubscribed, MailingID: &m}); err != nil {
				t.Fatal(err)
			}
		}
	}
	counted := func() string {
		t.Helper()
		var numbers []int
		for _, id := range []uuid.UUID{locked, free} {
			m, err := d.Store.FindMailing(t.Context(), company, id)
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, m.Unsubscribed)
		}
		return fmt.Sprint(numbers)
	}
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM mailings WHERE id = $1 FOR UPDATE`, locked); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		folded int
		want   string
	}{{1, "[0 1]"}, {0, "[0 1]"}, {1, "[1 1]"}, {0, "[1 1]"}} {
		if step.want == "[1 1]" {
			_ = tx.Rollback()
		}
		if n, err := d.Store.FoldMailingFeedback(t.Context()); err != nil || n != step.folded {
			t.Errorf("%d mailings, %v, want %d", n, err, step.folded)
		}
		if got := counted(); got != step.want {
			t.Errorf("%s, want %s", got, step.want)
		}
	}
}

// Reading by a problem, or suppressions by creation, goes along an index and does not read more than
// a page.
func TestPlans_DeliveryFilters(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	fillSent(t, d, company, 20_000)
	run(t, d, `UPDATE email_logs SET delivered_at = now()`)
	run(t, d, `UPDATE email_logs SET delivery_problem = 'bounced', delivery_problem_at = now() WHERE outbox_id IN (SELECT outbox_id FROM email_logs ORDER BY outbox_id LIMIT 300)`)
	run(t, d, `INSERT INTO suppressions (company_id, address, reason, created_at) SELECT $1, n || '@example.com', 'MANUAL', now() - n * interval '1 hour' FROM generate_series(1, 20000) n`, company)
	run(t, d, `ANALYZE`)
	db := storetest.Connect(t, d, store.Options{})
	for index, plan := range map[string]string{
		`_problem `:             storetest.Explain(t, db, "(ANALYZE, TIMING OFF) "+written(t, "emails.problemIDsSQL"), company, uuid.Max, uuid.Nil, "bounced", 50),
		`suppressions_created `: storetest.Explain(t, db, "(ANALYZE, TIMING OFF) "+written(t, "suppression.newSuppressionsSQL"), company, "", "", "", "", 50, time.Now().Add(-100*time.Hour), time.Now().Add(-100*time.Hour)),
	} {
		if !strings.Contains(plan, index) && !strings.Contains(plan, "company_id_delivery_problem_outbox_id") {
			t.Errorf("%s is not used:\n%s", index, plan)
		}
		for _, many := range []string{"actual rows=300", "actual rows=20000", "Rows Removed by Filter"} {
			if strings.Contains(plan, many) {
				t.Errorf("%s: %s:\n%s", index, many, plan)
			}
		}
	}
	// A step of a list by updatedAfter looks at no more emails than one by status, each in several tables.
	plan, read := explainPage(t, d, company, emails.Filter{UpdatedAfter: time.Now().Add(time.Hour), Limit: writtenNumber(t, "emails.ListScan")})
	if read > 8*writtenNumber(t, "emails.ListScan") || !regexp.MustCompile(`email_events_\w*pkey`).MatchString(plan) {
		t.Errorf("by update: %d rows read:\n%s", read, plan)
	}
	found, err := d.Store.ListEmails(t.Context(), company, emails.Filter{Delivery: email.DeliveryBounced, Limit: 50})
	if err != nil || len(found.Emails) != 50 {
		t.Errorf("%d emails, %v", len(found.Emails), err)
	}
}

// A list by creation has each suppression once, page by page, also those of one time.
func TestSuppressions_ByCreation(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	run(t, d, `INSERT INTO suppressions (company_id, address, reason, created_at)
		SELECT $1, n || '@example.com', r, now() - (n / 3) * interval '1 hour' FROM generate_series(0, 14) n, unnest('{BOUNCE,MANUAL}'::text[]) r`, company)
	f := suppression.Filter{CreatedAfter: time.Now().Add(-150 * time.Minute), Limit: 4}
	seen := map[string]bool{}
	var last time.Time
	for {
		page, err := d.Store.Suppressions(t.Context(), company, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			if key := s.Address + string(s.Reason); seen[key] || s.CreatedAt.Before(last) || s.CreatedAt.Before(f.CreatedAfter) {
				t.Errorf("%+v", s)
			} else {
				seen[key] = true
			}
			last, f.AfterTime, f.AfterAddress, f.AfterReason = s.CreatedAt, s.CreatedAt, s.Address, s.Reason
		}
		if len(page) < f.Limit {
			break
		}
	}
	if len(seen) != 18 { // of three hours
		t.Errorf("%d suppressions", len(seen))
	}
}
