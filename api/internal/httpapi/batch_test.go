package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/waittest"
)

// batchBody returns the body of a batch.
func batchBody(emails ...string) string { return `{"emails":[` + strings.Join(emails, ",") + `]}` }

// batch posts a batch; query may be "?mode=partial".
func (g *gateway) batch(tb testing.TB, query, key, body string) reply {
	tb.Helper()
	c := call{Method: http.MethodPost, Path: "/v1/email/batch" + query, Body: body}
	if key != "" {
		c.Header = map[string]string{"Idempotency-Key": key}
	}
	return g.do(tb, c)
}

// batchReply is a response to a batch.
type batchReply struct {
	RequestID                      string
	Accepted, Duplicates, Rejected int
	Emails                         []struct {
		Index                                      int
		Result, OutboxID, RequestID, Status, JobID string
		CreatedAt                                  string
		Error                                      struct {
			Status       int
			Code, Detail string
			Quota        string
			Errors       []struct{ Field, Code string }
		}
	}
}

func (r reply) batch(tb testing.TB) batchReply {
	tb.Helper()
	var b batchReply
	if r.Status != http.StatusAccepted {
		tb.Fatalf("%d %s", r.Status, r.Body)
	}
	if err := json.Unmarshal([]byte(r.Body), &b); err != nil {
		tb.Fatal(err)
	}
	return b
}

// results lists index, result, status and the first fault of each item.
func (b batchReply) results() []string {
	var all []string
	for _, e := range b.Emails {
		line := fmt.Sprint(e.Index, " ", e.Result, " ", e.Status, e.Error.Code)
		for _, f := range e.Error.Errors {
			line += " " + f.Field
		}
		all = append(all, line)
	}
	return all
}

func to(address string) func(fields) {
	return func(f fields) {
		f["to"] = address
		f["recipient"] = fields{"externalId": "CUST-" + address}
	}
}

func TestBatch_IsAcceptedInOrder(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	var all []string
	for i := range 500 {
		all = append(all, emailBody(func(f fields) {
			to(fmt.Sprintf("p%d@example.com", i))(f)
			switch i {
			case 7:
				f["priority"] = 1
			case 8:
				delete(f, "html")
				f["text"], f["tags"], f["delivery"] = "Olá", []string{"boleto"}, "at_most_once"
			}
		}))
	}
	r := g.batch(t, "", "", batchBody(all...))
	b := r.batch(t)
	if b.Accepted != 500 || b.Duplicates != 0 || b.Rejected != 0 || len(b.Emails) != 500 || b.RequestID != r.Header.Get("X-Request-Id") {
		t.Fatalf("%d %d %d of %d", b.Accepted, b.Duplicates, b.Rejected, len(b.Emails))
	}
	for i, e := range b.Emails {
		if e.Index != i || e.Result != "accepted" || e.Status != "PENDING" || e.JobID != e.OutboxID || e.RequestID != b.RequestID || e.CreatedAt == "" {
			t.Fatalf("%d: %+v", i, e)
		}
	}
	for _, i := range []int{0, 7, 8, 499} {
		if shown := g.show(t, b.Emails[i].OutboxID); shown["to"] != fmt.Sprintf("p%d@example.com", i) || shown["requestId"] != b.RequestID {
			t.Errorf("%d: %v", i, shown)
		}
	}
	var wrong int
	err := g.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM email_outbox WHERE priority <> 5 AND payload ->> 'to' <> 'p7@example.com'
		OR delivery <> 'at_least_once' AND payload ->> 'to' <> 'p8@example.com' OR xmin <> (SELECT xmin FROM email_outbox LIMIT 1)`).Scan(&wrong)
	if err != nil || wrong > 0 {
		t.Errorf("%d rows are wrong, or were inserted by another transaction (%v)", wrong, err)
	}
	if n := g.Wakes.Load(); n != 1 {
		t.Errorf("%d dispatcher notifications", n)
	}
}

func TestBatch_StrictListsAllFaults(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	r := g.batch(t, "", "k", batchBody(
		emailBody(nil),
		emailBody(func(f fields) { f["to"], f["subject"] = "no address", "" }),
		`null`,
		emailBody(with("html", "<script>x</script>")),
		emailBody(with("nonsense", 1)),
		emailBody(with("recipient", fields{"recipientId": "0199d0a8-5f6e-7c3a-9b1e-2f4a6c8e0d12"})),
		emailBody(with("from", "x@elsewhere.example")),
	))
	p := r.problem(t)
	var got []string
	for _, f := range p.Errors {
		got = append(got, f.Field+" "+f.Code)
	}
	want := []string{
		"emails[1].to INVALID_EMAIL", "emails[1].subject REQUIRED", "emails[2] WRONG_TYPE", "emails[3].html INVALID_TEMPLATE",
		"emails[4].nonsense UNKNOWN_FIELD", "emails[5].recipient.recipientId RECIPIENT_NOT_FOUND", "emails[6].from SENDER_NOT_ALLOWED",
	}
	if diff := cmp.Diff(want, got); diff != "" || r.Status != http.StatusUnprocessableEntity || p.Code != "VALIDATION_FAILED" || !strings.Contains(p.Detail, "6 of the 7") {
		t.Errorf("%d %s %s\n%s", r.Status, p.Code, p.Detail, diff)
	}
	if n := g.rows(t); n != 0 {
		t.Errorf("%d rows", n)
	}
	if b := g.batch(t, "", "k", batchBody(emailBody(nil))).batch(t); b.Accepted != 1 {
		t.Errorf("the rejected batch has reserved its Idempotency-Key: %+v", b)
	}
}

// Faults of the batch itself are rejected in every mode.
func TestBatch_OfTheWrongShape(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for body, want := range map[string]struct {
		status int
		code   string
		field  string
	}{
		`{"emails":[]}`:        {422, "VALIDATION_FAILED", "emails"},
		`{}`:                   {422, "VALIDATION_FAILED", "emails"},
		emailBody(nil):         {422, "VALIDATION_FAILED", "html"},
		`[]`:                   {400, "MALFORMED_JSON", ""},
		`{"emails":[{}`:        {400, "MALFORMED_JSON", ""},
		`{"emails":{"to":""}}`: {422, "VALIDATION_FAILED", "emails"},
		batchBody(strings.Split(strings.Repeat("{} ", 501)[:501*3-1], " ")...): {422, "VALIDATION_FAILED", "emails"},
		strings.Repeat(" ", 10<<20) + `{}`:                                     {413, "BODY_TOO_LARGE", ""},
	} {
		for _, mode := range []string{"", "?mode=strict", "?mode=partial"} {
			r := g.batch(t, mode, "", body)
			p := r.problem(t)
			if r.Status != want.status || p.Code != want.code || want.field != "" && p.Errors[0].Field != want.field {
				t.Errorf("%.40s %s: %d %s", body, mode, r.Status, r.Body)
			}
		}
	}
	for _, mode := range []string{"?mode=half", "?mode=partial&mode=strict", "?modus=partial"} {
		if r := g.batch(t, mode, "", batchBody(emailBody(nil))); r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", mode, r.Status, r.Body)
		}
	}
	if n := g.rows(t); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestBatch_Partial(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	earlier := g.send(t, emailBody(about("42", "ISSUED"))).json(t)
	body := batchBody(
		emailBody(with("subject", "")),
		emailBody(nil),
		emailBody(about("42", "ISSUED")),
		emailBody(about("43", "ISSUED")),
		`5`,
		emailBody(func(f fields) { about("43", "ISSUED")(f); f["subject"] = "" }),
		emailBody(about("43", "ISSUED")),
		emailBody(with("to", "half a pair")),
	)
	body = strings.Replace(body, "half a pair", `\ud800`, 1) // has no canonical form
	first := g.batch(t, "?mode=partial", "k", body)
	b := first.batch(t)
	want := []string{
		"0 rejected VALIDATION_FAILED emails[0].subject", "1 accepted PENDING", "2 duplicate PENDING", "3 accepted PENDING",
		"4 rejected VALIDATION_FAILED emails[4]", "5 rejected VALIDATION_FAILED emails[5].subject", "6 duplicate PENDING",
	}
	if diff := cmp.Diff(want, b.results()[:7]); diff != "" || b.Accepted != 2 || b.Duplicates != 2 || b.Rejected != 4 {
		t.Errorf("%s\n%s", diff, first.Body)
	}
	if e := b.Emails[2]; e.OutboxID != earlier["outboxId"] || e.RequestID != earlier["requestId"] || e.CreatedAt != earlier["createdAt"] {
		t.Errorf("%+v, want %v", e, earlier)
	}
	if b.Emails[6].OutboxID != b.Emails[3].OutboxID || b.Emails[6].CreatedAt != b.Emails[3].CreatedAt {
		t.Errorf("%+v", b.Emails)
	}
	rows := g.rows(t)
	if again := g.batch(t, "?mode=partial", "k", body); again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%v %s", again.Header, again.Body)
	}
	for _, c := range [][2]string{{"", body}, {"?mode=partial", batchBody(emailBody(nil))}} {
		if r := g.batch(t, c[0], "k", c[1]); r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%d %s", r.Status, r.Body)
		}
	}
	if n := g.rows(t); n != rows {
		t.Errorf("%d additional rows", n-rows)
	}
	// If every item is rejected, the response has the same form.
	none := g.batch(t, "?mode=partial", "", batchBody(`{}`, emailBody(with("subject", ""))))
	if b := none.batch(t); b.Rejected != 2 || b.Accepted != 0 || g.rows(t) != rows {
		t.Errorf("%s", none.Body)
	}
	if keyed := g.batch(t, "?mode=partial", "none", batchBody(`{}`)); keyed.Body == "" || g.batch(t, "?mode=partial", "none", batchBody(`{}`)).Body != keyed.Body {
		t.Errorf("%s", keyed.Body)
	}
}

// A duplicate has its current status; a replayed batch has the statuses of the first response.
func TestBatch_Duplicates(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	body := batchBody(emailBody(about("1", "A")), emailBody(about("2", "A")), emailBody(about("1", "A")))
	first := g.batch(t, "", "k", body)
	b := first.batch(t)
	if diff := cmp.Diff([]string{"0 accepted PENDING", "1 accepted PENDING", "2 duplicate PENDING"}, b.results()); diff != "" {
		t.Fatal(diff)
	}
	g.step(t, b.Emails[0].OutboxID, "cancel")
	g.Run(t, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1`, b.Emails[1].OutboxID)
	if r := g.batch(t, "", "k", body); r.Body != first.Body {
		t.Errorf("%s", r.Body)
	}
	second := g.batch(t, "", "other", body).batch(t)
	if diff := cmp.Diff([]string{"0 accepted PENDING", "1 duplicate ENQUEUED", "2 duplicate PENDING"}, second.results()); diff != "" {
		t.Error(diff)
	}
	if second.Emails[0].OutboxID == b.Emails[0].OutboxID || second.Emails[1].OutboxID != b.Emails[1].OutboxID {
		t.Errorf("%+v", second)
	}
	rows := g.rows(t)
	all := g.batch(t, "", "", batchBody(emailBody(about("2", "A")))).batch(t)
	if all.Duplicates != 1 || g.rows(t) != rows {
		t.Errorf("%+v", all)
	}
}

// Two batches that name the same aggregates in different order, and single sends, do not deadlock: each email is accepted once.
func TestBatch_DuplicatesAtTheSameTime(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	const n = 40
	other := startOn(t, g.Database, nil) // another process
	var forward, backward []string
	for i := range n {
		forward = append(forward, emailBody(about(fmt.Sprint(i), "A")))
		backward = append(backward, emailBody(about(fmt.Sprint(n-1-i), "A")))
	}
	other.Company = g.Company
	other.Key = g.newKey(t, g.Company, nil)
	var group sync.WaitGroup
	replies := make([]reply, 6)
	for i := range replies {
		body, on := batchBody(forward...), g
		if i%2 == 1 {
			body, on = batchBody(backward...), other
		}
		group.Go(func() {
			waittest.Until(t, "there is a place for another batch", func() bool {
				replies[i] = on.batch(t, "", "", body)
				return replies[i].Status == http.StatusAccepted
			})
		})
	}
	group.Wait()
	accepted := 0
	for _, r := range replies {
		accepted += r.batch(t).Accepted
	}
	if rows := g.rows(t); accepted != n || rows != 2*n {
		t.Errorf("%d accepted, %d rows", accepted, rows)
	}
}

func TestBatch_SameKeyAtTheSameTime(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	other := startOn(t, g.Database, nil) // another process
	key := g.newKey(t, g.Company, nil).String()
	body := batchBody(emailBody(nil), emailBody(about("1", "A")))
	replies := make([]reply, 8)
	var group sync.WaitGroup
	for i := range replies {
		on := []*gateway{g, other}[i%2]
		group.Go(func() {
			replies[i] = on.do(t, call{Method: http.MethodPost, Path: "/v1/email/batch", Key: key, Body: body, Header: map[string]string{"Idempotency-Key": "k"}})
		})
	}
	group.Wait()
	for _, r := range replies {
		if r.Status != http.StatusAccepted || r.Body != replies[0].Body {
			t.Errorf("%d %s", r.Status, r.Body)
		}
	}
	if n := g.rows(t); n != 4 {
		t.Errorf("%d rows, want two emails, a key and an aggregate", n)
	}
}

// The rate limit counts items. A batch may be larger than the burst: the requests after it then wait longer.
func TestBatch_RateLimit(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	key := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.RatePerSecond, k.Burst = 1, 100 }).String()
	post := func(n int) reply {
		var all []string
		for range n {
			all = append(all, emailBody(nil))
		}
		return g.do(t, call{Method: http.MethodPost, Path: "/v1/email/batch", Key: key, Body: batchBody(all...)})
	}
	if r := post(60); r.Status != http.StatusAccepted || len(r.Header.Get("RateLimit-Remaining")) != 2 {
		t.Fatalf("%d %v %s", r.Status, r.Header, r.Body)
	}
	r := post(500)
	if p := r.problem(t); r.Status != http.StatusTooManyRequests || p.Code != "RATE_LIMITED" || r.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %v %s", r.Status, r.Header, r.Body)
	}
	full := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.RatePerSecond, k.Burst = 1, 100 }).String()
	key = full
	if r := post(500); r.Status != http.StatusAccepted {
		t.Fatalf("larger than a burst: %d %s", r.Status, r.Body)
	}
	r = post(1)
	if wait := r.Header.Get("Retry-After"); r.Status != http.StatusTooManyRequests || len(wait) != 3 {
		t.Errorf("the request after the large batch: %d, Retry-After %s", r.Status, wait)
	}
}

// Quotas count emails: strict batches all or nothing, partial ones as many as there is room for.
func TestBatch_Quota(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	limit := int64(4)
	if err := g.Store.SetQuotas(t.Context(), storetest.Operator(), g.Company, map[quota.Quota]*int64{quota.EmailsPerDay: &limit}); err != nil {
		t.Fatal(err)
	}
	five := batchBody(emailBody(about("1", "A")), emailBody(nil), emailBody(about("1", "A")), emailBody(nil), emailBody(about("2", "A")), emailBody(about("3", "A")), emailBody(about("3", "A")))
	r := g.batch(t, "", "k", five)
	if r.Status != http.StatusTooManyRequests || r.problem(t).Code != "QUOTA_EXCEEDED" || r.Header.Get("Retry-After") == "" || g.rows(t) != 0 {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	b := g.batch(t, "?mode=partial", "k", five).batch(t)
	want := []string{
		"0 accepted PENDING", "1 accepted PENDING", "2 duplicate PENDING", "3 accepted PENDING", "4 accepted PENDING",
		"5 rejected QUOTA_EXCEEDED", "6 rejected QUOTA_EXCEEDED",
	}
	if diff := cmp.Diff(want, b.results()); diff != "" {
		t.Error(diff)
	}
	if e := b.Emails[5].Error; e.Status != http.StatusTooManyRequests || e.Quota != "emails_per_day" {
		t.Errorf("%+v", e)
	}
	if n := g.rows(t); n != 4+2+1 {
		t.Errorf("%d rows, want four emails, two aggregates and a key", n)
	}
	limit = 5
	if err := g.Store.SetQuotas(t.Context(), storetest.Operator(), g.Company, map[quota.Quota]*int64{quota.EmailsPerDay: &limit}); err != nil {
		t.Fatal(err)
	}
	if b := g.batch(t, "", "", batchBody(emailBody(about("3", "A")), emailBody(about("1", "A")))).batch(t); b.Accepted != 1 || b.Duplicates != 1 {
		t.Errorf("a duplicate used a quota, or a rejected item kept its aggregate: %+v", b)
	}
}

// A person uses the quota of recipients once, with the first email of the batch that is accepted: each item of a partial
// batch gets the result that it would get alone.
func TestBatch_QuotaOfRecipients(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	storetest.Upsert(t, g.Database, storetest.Intake(t, g.Database, g.Company, storetest.KnownRecipient("CUST-1", "ana@example.com", "Ana"))...)
	set := func(limit int64) {
		t.Helper()
		if err := g.Store.SetQuotas(t.Context(), storetest.Operator(), g.Company, map[quota.Quota]*int64{quota.Recipients: &limit}); err != nil {
			t.Fatal(err)
		}
	}
	bia := func(change func(fields)) string {
		return emailBody(func(f fields) {
			f["to"], f["recipient"] = "bia@example.com", fields{"externalId": "CUST-2", "email": "bia@example.com"}
			if change != nil {
				change(f)
			}
		})
	}
	items := []string{emailBody(nil), bia(nil), bia(nil)}
	want := []string{"0 accepted PENDING", "1 rejected QUOTA_EXCEEDED", "2 rejected QUOTA_EXCEEDED"}
	for n := range 7 {
		items = append(items, bia(about("1", fmt.Sprint("E", n))))
		want = append(want, fmt.Sprint(3+n, " rejected QUOTA_EXCEEDED"))
	}
	set(1)
	if diff := cmp.Diff(want, g.batch(t, "?mode=partial", "", batchBody(items...)).batch(t).results()); diff != "" {
		t.Error(diff)
	}
	if r := g.batch(t, "", "", batchBody(items...)); r.Status != http.StatusTooManyRequests {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	set(2)
	if b := g.batch(t, "?mode=partial", "", batchBody(items...)).batch(t); b.Accepted != len(items) {
		t.Errorf("%v", b.results())
	}
}
