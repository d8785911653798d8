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
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// ingested ingests a valid mailing.
func ingested(t *testing.T, d storetest.Database, m mailing.NewMailing, lines iter.Seq2[mailing.Line, error]) mailing.Counts {
	t.Helper()
	counts, _, err := d.Store.IngestMailing(t.Context(), m, lines)
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// given yields the lines one by one.
func given(lines ...mailing.Line) iter.Seq2[mailing.Line, error] {
	return func(yield func(mailing.Line, error) bool) {
		for _, line := range lines {
			if !yield(line, nil) {
				return
			}
		}
	}
}

// entry is the entry of a line with this address.
func entry(line int, address, invalid string) mailing.Line {
	e := storetest.NewEntry(line)
	e.Email, e.InvalidReason = address, invalid
	return mailing.Line{Entry: e}
}

// nothingWritten fails when any row of a mailing is there.
func nothingWritten(t *testing.T, d storetest.Database) {
	t.Helper()
	if rows := ask[int](t, d, `
		SELECT (SELECT count(*) FROM mailings) + (SELECT count(*) FROM mailing_entries) + (SELECT count(*) FROM mailing_rejects)
		     + (SELECT count(*) FROM email_outbox) + (SELECT count(*) FROM idempotency_keys) + (SELECT count(*) FROM dispatch_lanes WHERE mailing_id IS NOT NULL)`); rows != 0 {
		t.Errorf("%d rows left behind", rows)
	}
}

func TestIngestMailing_OneCommitWithAllThatBelongs(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	sendAt := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	m := storetest.NewMailing(company, func(m *mailing.NewMailing) {
		m.SendAt, m.Tags, m.ReplyTo, m.Text = sendAt, []string{"natal", `a "b"`}, "reply@acme.example", "Olá"
		m.Tests = []outbox.NewEmail{storetest.NewEmail(company, nil), storetest.NewEmail(company, nil)}
		m.Key = keyFor("k")
	})
	full := storetest.NewEntry(2)
	full.Fields, full.CPFCNPJ, full.CPFCNPJHash, full.RazaoSocial = []string{`R$ "1",\ {2}` + "\t\n"}, []byte{0, 1, '\\'}, strings.Repeat("0a", 32), "Acme Ltda"
	lines := []mailing.Line{
		{Entry: full},
		{Reject: &mailing.RejectedLine{Line: 3, Column: "valor", Code: "TOO_LONG"}},
		{Reject: &mailing.RejectedLine{Line: 5, Code: "UNREADABLE"}},
		entry(6, "nobody", "syntax"),
		entry(7, "USER2@Example.com", ""),
		entry(8, "Nobody", ""), // of an invalid one
	}
	bare := &mailing.NewEntry{ID: uuid.Must(uuid.NewV7()), Line: 9, Email: "bare@example.com"}
	counts, answer, err := d.Store.IngestMailing(t.Context(), m, given(append(lines, mailing.Line{Entry: bare})...))
	if err != nil {
		t.Fatal(err)
	}
	if want := (mailing.Counts{Total: 7, Accepted: 2, Invalid: 3, Duplicates: 2}); counts != want {
		t.Errorf("counted %+v, want %+v", counts, want)
	}
	if want := fmt.Sprintf(`{"mailingId":%q,"accepted":2}`, m.ID); string(answer) != want {
		t.Errorf("answer %s", answer)
	}
	for what, query := range map[string]string{
		"mailing": `SELECT status = 'QUEUED' AND generation = 1 AND first_entry = $2 AND last_entry = $3 AND total_lines = 7 AND accepted = 2 AND invalid = 3
			AND duplicates = 2 AND answer = $4 AND completed_at IS NULL AND tags = '{natal,"a \"b\""}' AND fields = '{cidade}' AND text_body = 'Olá' FROM mailings WHERE id = $1`,
		"key": `SELECT count(*) = 1 FROM idempotency_keys WHERE outbox_id = $1 AND answer = $4 AND $2::uuid <> $3::uuid`,
		"entry": `SELECT line_no = 2 AND fields = ARRAY[E'R$ "1",\\ {2}\t\n'] AND cpf_cnpj_enc = '\x00015c' AND cpf_cnpj_hash = repeat('0a', 32) AND razao_social = 'Acme Ltda'
			AND token = 'token-2' AND recipient_external_id = 'CUST-2' AND nome = 'Ana' AND status = 'PENDING' AND $3::uuid <> id AND $4::bytea IS NOT NULL
			FROM mailing_entries WHERE mailing_id = $1 AND id = $2`,
		"bare entry": `SELECT fields = '{}' AND cpf_cnpj_enc IS NULL AND cpf_cnpj_hash IS NULL AND nome IS NULL AND razao_social IS NULL AND recipient_external_id IS NULL
			AND $2::uuid <> id AND $4::bytea IS NOT NULL FROM mailing_entries WHERE mailing_id = $1 AND id = $3`,
		"lane": `SELECT paused_at IS NULL AND queue = 'email:send:low' AND $2::uuid <> $3::uuid AND $4::bytea IS NOT NULL FROM dispatch_lanes WHERE mailing_id = $1`,
	} {
		if !ask[bool](t, d, query, m.ID, full.ID, bare.ID, answer) {
			t.Errorf("%s has wrong columns", what)
		}
	}
	if !ask[bool](t, d, `SELECT o.status = 'PENDING' AND o.payload = jsonb_build_object('mailingId', $1::text, 'storageUrl', $2::text, 'generation', 1) AND o.next_at = $3
			AND o.expires_at = 'infinity' AND o.request_id = $4 AND l.queue = 'mailing.jobs.process' AND l.company_id = o.company_id AND l.mailing_id IS NULL
		FROM email_outbox o JOIN dispatch_lanes l ON l.id = o.lane_id WHERE o.target = 'mailing.process'`, m.ID.String(), m.StorageURL, sendAt, m.RequestID) {
		t.Error("the mailing's job has wrong columns")
	}
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE target = 'email:send' AND html IS NOT NULL AND next_at <= now()`); n != 2 {
		t.Errorf("%d test emails", n)
	}
	if got := ask[string](t, d, `SELECT string_agg(concat_ws(' ', line_no, column_name, code), ', ' ORDER BY line_no) FROM mailing_rejects`); got != "3 valor TOO_LONG, 5 UNREADABLE, 7 e-mail DUPLICATE, 8 e-mail DUPLICATE" {
		t.Error(got)
	}
}

// The names of columns that a line stores are limited together, whatever the header of the file has.
func TestIngestMailing_LongNames(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	long := strings.Repeat("é", 30_000)
	names := func(e mailing.Line, names ...string) mailing.Line {
		e.Entry.EmptyFields = names
		return e
	}
	many := strings.Split(strings.Repeat(strings.Repeat("n", 99)+" ", 160), " ")
	ingested(t, d, storetest.NewMailing(d.Company(t), func(m *mailing.NewMailing) { m.EmailColumn = long }), given(
		names(entry(2, "a@example.com", ""), many...), names(entry(3, "é@example.com", ""), many...), // by COPY and by INSERT
		names(entry(4, "b@example.com", ""), long, "nome"), names(entry(5, "c@example.com", ""), "nome", "cidade"),
		entry(6, "A@example.com", ""), mailing.Line{Reject: &mailing.RejectedLine{Line: 7, Column: long, Code: "TOO_LONG"}},
	))
	const entries = `SELECT string_agg(line_no || ' ' || cardinality(empty_fields) || ' ' || empty_fields[cardinality(empty_fields)], ', ' ORDER BY line_no) FROM mailing_entries`
	if got := ask[string](t, d, entries); got != "2 6 …, 3 6 …, 4 1 …, 5 2 cidade" {
		t.Error(got)
	}
	if got := ask[string](t, d, `SELECT string_agg(column_name, ' ' ORDER BY line_no) || ' ' || (SELECT email_column FROM mailings) FROM mailing_rejects`); got != "… … …" {
		t.Errorf("%.300q", got)
	}
}

func TestIngestMailing_WhatIsNotStarted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change                   func(*mailing.NewMailing)
		lines                    iter.Seq2[mailing.Line, error]
		status                   string
		lanes, jobs, tests, kept int
	}{
		"held":                 {func(m *mailing.NewMailing) { m.Held = true }, storetest.Lines(3), "PAUSED", 1, 0, 1, 3},
		"dry run":              {func(m *mailing.NewMailing) { m.DryRun = true }, storetest.Lines(3), "COMPLETED", 0, 0, 0, 3},
		"held dry run":         {func(m *mailing.NewMailing) { m.DryRun, m.Held = true, true }, storetest.Lines(3), "COMPLETED", 0, 0, 0, 3},
		"nobody to send to":    {nil, given(entry(2, "x", "syntax"), entry(3, "a@trash.example", "disposable")), "COMPLETED", 0, 0, 1, 2},
		"held, nobody to send": {func(m *mailing.NewMailing) { m.Held = true }, given(entry(2, "x", "syntax")), "COMPLETED", 0, 0, 1, 1},
		"no lines":             {nil, given(), "COMPLETED", 0, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			m := storetest.NewMailing(d.Company(t), tt.change)
			m.Tests = []outbox.NewEmail{storetest.NewEmail(m.CompanyID, nil)}
			ingested(t, d, m, tt.lines)
			got := ask[string](t, d, `SELECT concat_ws(' ', status, completed_at IS NOT NULL,
				(SELECT count(*) FROM dispatch_lanes WHERE mailing_id = m.id AND (paused_at IS NOT NULL) = (m.status = 'PAUSED')),
				(SELECT count(*) FROM email_outbox WHERE target = 'mailing.process'), (SELECT count(*) FROM email_outbox WHERE target = 'email:send'),
				(SELECT count(*) FROM mailing_entries e WHERE e.id BETWEEN m.first_entry AND m.last_entry)) FROM mailings m`)
			completed := "f"
			if tt.status == "COMPLETED" {
				completed = "t"
			}
			if want := fmt.Sprint(tt.status, " ", completed, " ", tt.lanes, " ", tt.jobs, " ", tt.tests, " ", tt.kept); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// Twenty thousand lines with duplicates near and far, in other letter cases, of invalid entries and with letters outside
// ASCII: the first of each address becomes an entry, the others are duplicates, and all lines are counted.
func TestIngestMailing_TheFirstOfEachAddressIsKept(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	const lines = 20000
	expected, first := map[int]bool{}, map[string]int{}
	want := mailing.Counts{}
	e, reject := storetest.NewEntry(1), mailing.RejectedLine{Code: "UNREADABLE"}
	counts := ingested(t, d, storetest.NewMailing(d.Company(t), nil), func(yield func(mailing.Line, error) bool) {
		for i := range lines {
			line := i + 2
			want.Total++
			if i%997 == 0 {
				reject.Line = line
				want.Invalid++
				if !yield(mailing.Line{Reject: &reject}, nil) {
					return
				}
				continue
			}
			n := i * 7919 % 16000 // every fourth of them comes again, 16,000 lines later
			switch {
			case i%50 == 1:
				n = (i - 1) * 7919 % 16000 // the line before
			case i > 12000 && i < 12600:
				n = i % 10
			}
			e.ID, e.Line, e.Email, e.InvalidReason = uuid.Must(uuid.NewV7()), line, fmt.Sprintf("user%d@example.com", n), ""
			if n%101 == 0 {
				e.Email = "é" + e.Email
			}
			if i%3 == 0 {
				e.Email = strings.ToUpper(e.Email)
			}
			if n%13 == 0 {
				e.InvalidReason = "syntax"
			}
			address := strings.ToLower(e.Email)
			if _, duplicate := first[address]; duplicate {
				want.Duplicates++
			} else {
				first[address], expected[line] = line, true
				if n%13 == 0 {
					want.Invalid++
				} else {
					want.Accepted++
				}
			}
			if !yield(mailing.Line{Entry: e}, nil) {
				return
			}
		}
	})
	want.SharedIDs = want.Accepted // all lines have the same id
	if counts != want || want.Duplicates < lines/5 {
		t.Errorf("counted %+v, want %+v", counts, want)
	}
	rows, err := d.SQL.QueryContext(t.Context(), `SELECT line_no FROM mailing_entries ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	before := 0
	for rows.Next() {
		var line int
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		if !expected[line] || line <= before {
			t.Fatalf("entry of line %d after line %d: the line is not expected, or out of order", line, before)
		}
		before = line
		delete(expected, line)
	}
	if err := rows.Err(); err != nil || len(expected) > 0 {
		t.Errorf("%d lines missing, %v", len(expected), err)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM mailing_rejects WHERE code = 'DUPLICATE'`); n != want.Duplicates {
		t.Errorf("%d lines rejected as duplicates, want %d", n, want.Duplicates)
	}
	if !ask[bool](t, d, `SELECT first_entry = (SELECT min(id::text)::uuid FROM mailing_entries) AND last_entry = (SELECT max(id::text)::uuid FROM mailing_entries) FROM mailings`) {
		t.Error("the range of ids is not that of the entries")
	}
}

// Bytes that Postgres cannot store, and addresses that are too long for it, must not abort an upload.
func TestIngestMailing_AnyBytes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	odd := "a\x00\xff\\\t\n\r\"{},'\u2028"
	m := storetest.NewMailing(d.Company(t), func(m *mailing.NewMailing) {
		m.Filename, m.Subject, m.HTML, m.Text, m.RequestID, m.Fields, m.Tags, m.EmailColumn = odd, odd, odd, odd, odd, []string{odd}, []string{odd}, odd
	})
	long := strings.Repeat("é", 300)
	ascii := "b\\\t\n\r\"{},'b@example.com" // goes by COPY, the others are held back
	lines := []mailing.Line{
		{Entry: &mailing.NewEntry{Email: odd, Token: odd, InvalidReason: "syntax", Fields: []string{odd, ""}, Nome: odd, RazaoSocial: odd, ExternalID: odd}},
		{Entry: &mailing.NewEntry{Email: "é" + odd, Token: odd, InvalidReason: "syntax", Fields: []string{odd, ""}, Nome: odd, RazaoSocial: odd, ExternalID: odd}},
		{Entry: &mailing.NewEntry{Email: long, InvalidReason: "syntax"}},
		{Entry: &mailing.NewEntry{Email: long, InvalidReason: "syntax"}},
		{Entry: &mailing.NewEntry{Email: strings.Repeat("e", 300), InvalidReason: "syntax"}},
		{Entry: &mailing.NewEntry{Email: "ana@example.com", Token: "t", Fields: []string{"", ""}}},
		{Entry: &mailing.NewEntry{Email: ascii, Token: odd, InvalidReason: "syntax", Fields: []string{odd, ""}, Nome: odd, RazaoSocial: odd, ExternalID: odd}},
		{Reject: &mailing.RejectedLine{Line: 9, Column: odd, Code: odd}},
	}
	for i, line := range lines[:7] {
		line.Entry.ID, line.Entry.Line = uuid.Must(uuid.NewV7()), i+2
	}
	if got, want := ingested(t, d, m, given(lines...)), (mailing.Counts{Total: 8, Accepted: 1, Invalid: 6, Duplicates: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	clean := "a\uFFFD\\\t\n\r\"{},'\u2028"
	if n := ask[int](t, d, `SELECT count(*) FROM mailing_entries WHERE token = $1 AND fields = ARRAY[$1, ''] AND nome = $1
		AND razao_social = $1 AND recipient_external_id = $1 AND email IN ($1, 'é' || $1, $2)`, clean, ascii); n != 3 {
		t.Errorf("%d entries with the right fields, want 3", n)
	}
	// The filename is looked for as it is stored.
	again := storetest.NewMailing(m.CompanyID, func(again *mailing.NewMailing) { again.Filename = odd })
	again.DryRun = false
	var used *mailing.FilenameUsedError
	if _, _, err := d.Store.IngestMailing(t.Context(), again, storetest.Lines(1)); !errors.As(err, &used) {
		t.Errorf("the same filename: %v", err)
	}
}

func TestIngestMailing_NoLane(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"mailing.jobs.process", "email:send"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			m := storetest.NewMailing(d.Company(t), nil)
			m.Tests = []outbox.NewEmail{storetest.NewEmail(m.CompanyID, nil)}
			run(t, d, `DELETE FROM dispatch_lanes WHERE queue = $1`, queue)
			if _, _, err := d.Store.IngestMailing(t.Context(), m, storetest.Lines(1)); !errors.Is(err, lane.ErrNone) {
				t.Errorf("got %v", err)
			}
			nothingWritten(t, d)
		})
	}
}

// Lines are written as they come, so what is given may be used again at once.
func TestIngestMailing_KeepsNothingOfTheCallers(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	e := storetest.NewEntry(1)
	ingested(t, d, storetest.NewMailing(d.Company(t), nil), func(yield func(mailing.Line, error) bool) {
		for line := 2; line < 100; line++ {
			e.ID, e.Line, e.Email = uuid.Must(uuid.NewV7()), line, fmt.Sprintf("é%d@example.com", line) // held back
			e.Fields[0], e.CPFCNPJ = fmt.Sprint("city ", line), append(e.CPFCNPJ[:0], byte(line))
			if !yield(mailing.Line{Entry: e}, nil) {
				return
			}
		}
	})
	if n := ask[int](t, d, `SELECT count(*) FROM mailing_entries WHERE fields = ARRAY['city ' || line_no] AND get_byte(cpf_cnpj_enc, 0) = line_no`); n != 98 {
		t.Errorf("%d entries as given, want 98", n)
	}
}

// Letters whose lower case is an ASCII letter: the first address becomes the entry, in either form.
func TestIngestMailing_LettersThatBecomeASCII(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	got := ingested(t, d, storetest.NewMailing(d.Company(t), nil), given(
		entry(2, "\u212Aevin@example.com", "syntax"), entry(3, "kevin@example.com", ""), entry(4, "KEVIN@example.com", "")))
	want := mailing.Counts{Total: 3, Accepted: 1, Invalid: 1, Duplicates: 1}
	if ask[bool](t, d, `SELECT lower(U&'\212A') = 'k'`) {
		want = mailing.Counts{Total: 3, Invalid: 1, Duplicates: 2}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestIngestMailing_Key(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ingest := func(change func(*mailing.NewMailing)) error {
		m := storetest.NewMailing(company, func(m *mailing.NewMailing) { m.Key = keyFor("k") })
		if change != nil {
			change(&m)
		}
		_, _, err := d.Store.IngestMailing(t.Context(), m, storetest.Lines(1))
		return err
	}
	if err := ingest(nil); err != nil {
		t.Fatal(err)
	}
	var used *idempotency.UsedError
	if err := ingest(nil); !errors.As(err, &used) {
		t.Fatalf("got %v", err)
	}
	first := ask[[]byte](t, d, `SELECT answer FROM mailings`)
	if want := (idempotency.StoredAnswer{BodySHA256: slices.Repeat([]byte{7}, 32), Status: 202, Answer: first}); !cmp.Equal(used.Answer, want) {
		t.Errorf("got %+v, want %+v", used.Answer, want)
	}
	run(t, d, `UPDATE idempotency_keys SET expires_at = now()`)
	if err := ingest(nil); err != nil {
		t.Errorf("past its time: %v", err)
	}
}

// Another session has locked the company's quotas when the last line is written.
func TestIngestMailing_LockedQuotas(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	release := lock(t, d, `SELECT FROM quota_totals FOR UPDATE`)
	_, _, err := d.Store.IngestMailing(t.Context(), storetest.NewMailing(company, nil), storetest.Lines(3))
	if !errors.Is(err, store.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	nothingWritten(t, d)
	release()
	ingested(t, d, storetest.NewMailing(company, nil), storetest.Lines(3))
}
