package store_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/mailingreport"
	"email-gateway/shared/store/storetest"
)

func TestFindMailing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	m := storetest.NewMailing(company, func(m *mailing.NewMailing) {
		m.ReplyTo, m.Tags, m.SendAt = "reply@acme.example", []string{"natal"}, time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	})
	ingested(t, d, m, storetest.Lines(20))
	run(t, d, `UPDATE mailings SET status = 'SENDING', expanded_at = now(), processed_lines = 20, queued = 5, sent = 4, failed = 3, invalid_later = 2, suppressed = 1,
		expired = 1, cancelled = 1, unknown = 1, rate = 3.5, settling = 'retry-failed', error_message = 'x'`)
	got, err := d.Store.FindMailing(t.Context(), company, m.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Filename != m.Filename || got.Subject != m.Subject || *got.ReplyTo != m.ReplyTo || !slices.Equal(got.Tags, m.Tags) || !got.SendAt.Equal(m.SendAt) ||
		got.Status != mailing.Sending || got.Total != 20 || got.Accepted != 20 || got.Rate != 3.5 || *got.Settling != "retry-failed" || got.Processed != 20 || got.StorageURL != m.StorageURL {
		t.Errorf("%+v", got)
	}
	if got.Ended() != 13 || got.Remaining() != 2*time.Second {
		t.Errorf("ended %d, remaining %v", got.Ended(), got.Remaining())
	}
	got.Rate = 1e-30
	if left := got.Remaining(); left != 0 {
		t.Errorf("remaining %v at a rate of nearly 0", left)
	}
	for _, err := range []error{
		second(d.Store.FindMailing(t.Context(), d.Company(t), m.ID)),
		second(d.Store.FindMailing(t.Context(), company, uuid.New())),
		second(d.Store.MailingEntries(t.Context(), d.Company(t), m.ID, mailing.EntryFilter{})),
	} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	}
}

func second[V any](_ V, err error) error { return err }

func TestListMailings(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	want := make([]uuid.UUID, 5)
	for i := range want {
		want[4-i] = d.Mailing(t, company, 1, nil)
		d.Mailing(t, d.Company(t), 1, nil)
	}
	var got []uuid.UUID
	var before uuid.UUID
	for range 3 {
		page, err := d.Store.ListMailings(t.Context(), company, before, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page {
			got = append(got, m.ID)
			before = m.ID
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if page, err := d.Store.ListMailings(t.Context(), company, before, 2); err != nil || page == nil || len(page) > 0 {
		t.Errorf("behind the last: %v, %v", page, err)
	}
}

// Pages of a mailing's entries hold its own, in the order of the lines, also when
// another mailing's ids lie between them.
func TestMailingEntries(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	mine := storetest.NewMailing(company, nil)
	own, others := make([]mailing.Line, 10), make([]mailing.Line, 10)
	for i := range own {
		own[i], others[i] = entry(i+2, fmt.Sprintf("user%d@example.com", i+2), ""), entry(i+2, fmt.Sprintf("other%d@example.com", i), "")
	}
	own[3].Entry.InvalidReason = "syntax"
	ingested(t, d, mine, given(own...))
	ingested(t, d, storetest.NewMailing(company, nil), given(others...))
	run(t, d, `UPDATE mailing_entries SET status = 'SENT', external_id = 'ses-1', attempts = 1, last_attempt = now() WHERE line_no IN (4, 8, 9)`)
	for status, want := range map[string]string{"": "[2 3 4] [5 6 7] [8 9 10] [11]", "SENT": "[4 8 9] []", "INVALID": "[5]", "FAILED": "[]"} {
		var pages []string
		for f := (mailing.EntryFilter{Status: status, Limit: 3}); ; {
			page, err := d.Store.MailingEntries(t.Context(), company, mine.ID, f)
			if err != nil {
				t.Fatal(err)
			}
			lines := []int{}
			for _, e := range page {
				if e.Email != fmt.Sprintf("user%d@example.com", e.Line) || status != "" && e.Status != status {
					t.Errorf("%+v", e)
				}
				lines = append(lines, e.Line)
				f.After = e.ID
			}
			pages = append(pages, fmt.Sprint(lines))
			if len(page) < f.Limit {
				break
			}
		}
		if got := strings.Join(pages, " "); got != want {
			t.Errorf("%q: %s, want %s", status, got, want)
		}
	}
	page, err := d.Store.MailingEntries(t.Context(), company, mine.ID, mailing.EntryFilter{Status: "SENT", Limit: 1})
	if err != nil || page[0].ID != own[2].Entry.ID || *page[0].SESMessageID != "ses-1" || *page[0].ExternalID != "CUST-4" || page[0].LastAttempt == nil || page[0].Attempts != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	empty := d.Mailing(t, company, 0, nil)
	if page, err := d.Store.MailingEntries(t.Context(), company, empty, mailing.EntryFilter{Limit: 3}); err != nil || page == nil || len(page) > 0 {
		t.Errorf("without entries: %v, %v", page, err)
	}
}

// Every line comes once, in the order of the file, whatever the pages, with its outcome.
func TestMailingRows(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	m := storetest.NewMailing(company, nil)
	lines := make([]mailing.Line, 12)
	for i := range lines {
		lines[i] = entry(i+2, fmt.Sprintf("user%d@example.com", i+2), "")
	}
	lines[1].Entry.InvalidReason, lines[2].Entry.EmptyFields = "disposable", []string{"Cidade"}
	lines[4] = mailing.Line{Reject: &mailing.RejectedLine{Line: 6, Column: "CPF", Code: "INVALID_CPF_CNPJ"}}
	lines[5] = mailing.Line{Reject: &mailing.RejectedLine{Line: 7, Code: "UNCLOSED_QUOTE"}}
	lines[8].Entry.Email = "USER2@example.com"
	ingested(t, d, m, given(lines...))
	others := storetest.NewMailing(company, nil)
	ingested(t, d, others, given(entry(2, "other@example.com", "")))
	run(t, d, `UPDATE mailing_entries SET status = CASE line_no WHEN 2 THEN 'SENT' WHEN 4 THEN 'SUPPRESSED' ELSE 'FAILED' END, attempts = 1
		WHERE line_no IN (2, 4, 5, 8) AND mailing_id = $1`, m.ID)
	run(t, d, `INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, sent_at, failed_at, event_seq, last_event, error_code, error_reason)
		SELECT id, CASE line_no WHEN 8 THEN gen_random_uuid() ELSE $2 END, email, 's', status, 1, 'r', now(), now(), now(), now(), 1, 'x', 'CODE_' || line_no, 'because' FROM mailing_entries
		WHERE status IN ('SENT', 'FAILED', 'SUPPRESSED') AND mailing_id = $1`, m.ID, company)
	all := []string{
		"2 SENT", "3 INVALID DISPOSABLE", "4 SUPPRESSED CODE_4 because [Cidade]", "5 FAILED CODE_5 because", "6 INVALID INVALID_CPF_CNPJ CPF", "7 INVALID UNCLOSED_QUOTE",
		"8 FAILED", // its log is another company's
		"9 PENDING", "10 DUPLICATE DUPLICATE e-mail", "11 PENDING", "12 PENDING", "13 PENDING",
	}
	for status, want := range map[string][]string{
		"": all, "FAILED": {all[3], all[6]}, "INVALID": {all[1], all[4], all[5]}, "DUPLICATE": {all[8]}, "QUEUED": nil,
	} {
		for _, limit := range []int{1, 2, 5, 12, 100} {
			var got []string
			for f := (mailingreport.RowFilter{Status: status, Limit: limit}); ; {
				page, err := d.Store.MailingRows(t.Context(), company, m.ID, f)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Rows {
					text := fmt.Sprint(r.Line, " ", r.Status, " ", r.Code, " ", r.Reason, " ", r.Column)
					if len(r.EmptyFields) > 0 {
						text += fmt.Sprint(r.EmptyFields)
					}
					got = append(got, strings.Join(strings.Fields(text), " "))
					if r.ID.Valid != (r.Email != "") {
						t.Errorf("%+v", r)
					}
				}
				if f.After = page.End; !page.More {
					break
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q by %d: %s", status, limit, diff)
			}
		}
	}
	if _, err := d.Store.MailingRows(t.Context(), d.Company(t), m.ID, mailingreport.RowFilter{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another company: %v", err)
	}
}

// Rejected lines, duplicates and invalid entries come in the order of the lines, over
// many pages of each.
func TestMailingVerdicts(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	m := storetest.NewMailing(company, nil)
	var want []mailing.RejectedLine
	ingested(t, d, m, func(yield func(mailing.Line, error) bool) {
		for n := range 6000 {
			line := n + 2
			next := entry(line, fmt.Sprintf("user%d@example.com", line), "")
			switch {
			case n%7 == 0 || n > 5000 && n%2 == 0:
				next.Entry.InvalidReason = "disposable"
				want = append(want, mailing.RejectedLine{Line: line, Column: "e-mail", Code: "DISPOSABLE"})
			case n%5 == 0:
				next = mailing.Line{Reject: &mailing.RejectedLine{Line: line, Column: "valor", Code: "TOO_LONG"}}
				want = append(want, *next.Reject)
			case n%3 == 0:
				next.Entry.Email = "Twice@example.com"
				if n > 3 {
					want = append(want, mailing.RejectedLine{Line: line, Column: "e-mail", Code: mailing.CodeDuplicate})
				}
			case n%13 == 0: // sent, and reported
				next.Entry.EmptyFields = []string{"nome", `a "b", {c}`}
				want = append(want, mailing.RejectedLine{Line: line, Column: "nome", Code: mailing.CodeEmptyField}, mailing.RejectedLine{Line: line, Column: `a "b", {c}`, Code: mailing.CodeEmptyField})
			case n == 4001: // more columns than a page
				for c := range 300 {
					name := string(rune('A' + c%26))
					next.Entry.EmptyFields = append(next.Entry.EmptyFields, name)
					want = append(want, mailing.RejectedLine{Line: line, Column: name, Code: mailing.CodeEmptyField})
				}
			case n%11 == 0:
				next = mailing.Line{Reject: &mailing.RejectedLine{Line: line, Code: "UNREADABLE"}}
				want = append(want, *next.Reject)
			}
			if !yield(next, nil) {
				return
			}
		}
	})
	want[0].Code = "MX" // found later
	run(t, d, `UPDATE mailing_entries SET invalid_reason = 'mx' WHERE line_no = $1`, want[0].Line)
	if diff := cmp.Diff(want, collect(t, d.Store.MailingVerdicts(t.Context(), company, m.ID), len(want)+1)); diff != "" {
		t.Error(diff)
	}
	if part := collect(t, d.Store.MailingVerdicts(t.Context(), company, m.ID), 3); len(part) != 3 {
		t.Errorf("stopped after %d", len(part))
	}
	for _, err := range d.Store.MailingVerdicts(t.Context(), d.Company(t), m.ID) {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("another company: %v", err)
		}
	}
	clean := d.Mailing(t, company, 5, nil)
	if got := collect(t, d.Store.MailingVerdicts(t.Context(), company, clean), 1); len(got) > 0 {
		t.Errorf("nothing wrong: %v", got)
	}
}

// collect returns at most limit lines.
func collect(t *testing.T, verdicts iter.Seq2[mailing.RejectedLine, error], limit int) []mailing.RejectedLine {
	t.Helper()
	var all []mailing.RejectedLine
	for v, err := range verdicts {
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, v); len(all) == limit {
			break
		}
	}
	return all
}
