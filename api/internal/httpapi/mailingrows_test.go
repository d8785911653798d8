package httpapi_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every row of the file is listed in order, as JSON pages and as CSV, with its result.
func TestMailing_Rows(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, mailingForm())
	g.Run(t, `UPDATE mailing_entries SET status = 'FAILED', attempts = 5, outcome_unknown = true WHERE line_no = 3`)
	g.Run(t, `INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, failed_at, event_seq, last_event, error_code, error_reason)
		SELECT id, $1, email, 's', 'FAILED', 5, 'r', now(), now(), now(), 1, 'FAILED', 'SES_REJECTED', '=it was refused' FROM mailing_entries WHERE line_no = 3`, g.Company)
	g.Run(t, `INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, sent_at, event_seq, last_event,
			delivery_problem, delivery_problem_at, delivery_problem_reason)
		SELECT id, $1, email, 's', 'SENT', 1, 'r', now(), now(), now(), 1, 'BOUNCED', 'bounced', '2026-03-01T12:00:00Z', '=Permanent' FROM mailing_entries WHERE line_no = 4`, g.Company)
	g.Run(t, `UPDATE mailing_entries SET status = 'SENT', attempts = 1 WHERE line_no = 4`)
	all := []string{
		"2 joão@example.com INVALID SYNTAX", "3 maria@example.com FAILED SES_REJECTED", "4 ana@example.com SENT [Cidade] bounced 2026-03-01T12:00:00Z =Permanent",
		"5 DUPLICATE DUPLICATE E-mail", "6 INVALID MISSING_EMAIL E-mail", "7 INVALID INVALID_CPF_CNPJ CPF",
	}
	read := func(query string) (found []string, next string) {
		t.Helper()
		page := g.do(t, call{Path: "/mailings/" + id + "/rows" + query}).json(t)
		rows, _ := page["rows"].([]any)
		for _, r := range rows {
			row, _ := r.(map[string]any)
			text := fmt.Sprint(row["line"])
			for _, name := range []string{"email", "status", "errorCode", "column", "emptyFields", "delivery", "deliveryAt", "deliveryReason"} {
				if row[name] != nil {
					text += fmt.Sprint(" ", row[name])
				}
			}
			found = append(found, text)
			if row["errorCode"] != nil && row["errorReason"] == nil {
				t.Errorf("line %v: nothing in words", row["line"])
			}
		}
		next, _ = page["nextCursor"].(string)
		return found, next
	}
	if got, next := read(""); cmp.Diff(all, got) != "" || next != "" {
		t.Errorf("%s %q", cmp.Diff(all, got), next)
	}
	first, next := read("?limit=4")
	rest, _ := read("?limit=4&cursor=" + next)
	if diff := cmp.Diff(all, slices.Concat(first, rest)); diff != "" || len(first) != 4 {
		t.Error(diff)
	}
	if got, _ := read("?status=DUPLICATE"); cmp.Diff(all[3:4], got) != "" {
		t.Errorf("%v", got)
	}
	for _, query := range []string{"?status=SENDING", "?cursor=x", "?limit=101", "?what=x", "?format=xml", "?format=csv&limit=5", "?format=csv&cursor=x"} {
		if r := g.do(t, call{Path: "/mailings/" + id + "/rows" + query}); r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", query, r.Status)
		}
	}
	want := [][]string{
		{"line", "email", "status", "errorCode"},
		{"2", "joão@example.com", "INVALID", "SYNTAX"},
		{"3", "maria@example.com", "FAILED", "SES_REJECTED"},
		{"4", "ana@example.com", "SENT", ""},
		{"5", "", "DUPLICATE", "DUPLICATE"},
		{"6", "", "INVALID", "MISSING_EMAIL"},
		{"7", "", "INVALID", "INVALID_CPF_CNPJ"},
	}
	for _, c := range []call{{Path: "/rows?format=csv"}, {Path: "/rows", Header: map[string]string{"Accept": "application/json;q=0.9, text/*"}}} {
		c.Path = "/mailings/" + id + c.Path
		r := g.do(t, c)
		table, err := csv.NewReader(strings.NewReader(r.Body)).ReadAll()
		if err != nil || len(table) != len(want) || !strings.Contains(r.Header.Get("Content-Disposition"), "attachment") {
			t.Fatalf("%v %d %s", err, r.Status, r.Body)
		}
		if table[2][4] != "'=it was refused" || table[3][6] != "Cidade" {
			t.Errorf("%q, %q", table[2], table[3])
		}
		if delivery := fmt.Sprint(table[0][13:16], table[2][13:16], table[3][13:16]); delivery != "[delivery deliveryAt deliveryReason] [  ] [bounced 2026-03-01T12:00:00Z '=Permanent]" {
			t.Errorf("%s", delivery)
		}
		if unknown := 12; table[0][unknown] != "outcomeUnknown" || table[2][unknown] != "true" || table[3][unknown] != "false" {
			t.Errorf("%q, %q, %q", table[0], table[2], table[3])
		}
		for i := range table {
			table[i] = table[i][:4]
		}
		if diff := cmp.Diff(want, table); diff != "" {
			t.Error(diff)
		}
	}
	failed := g.do(t, call{Path: "/mailings/" + id + "/rows?format=csv&status=FAILED"})
	if n := strings.Count(failed.Body, "\r\n"); n != 2 || !strings.Contains(failed.Body, "\r\n3,maria@example.com,") {
		t.Errorf("%s", failed.Body)
	}
}

// A rejected row of several lines is reported with all of them: none of them is sent.
func TestMailing_RejectedRowOfSeveralLines(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, given(
		file("email;nome\na@example.com;Ana\nb@example.com;\"Bia\n"+strings.Repeat("x", 201)+"\"\nc@example.com;\"oi\nd@example.com;Davi\nfim\"\ne@example.com;Eva\nE@example.com;\"Eva\nLima\"\ne@example.com;Eva\n"),
		part{name: "html", value: "<p>x</p>"}, part{name: "subject", value: "x"},
	))
	if got, want := g.do(t, call{Path: "/mailings/" + id + "/verdicts"}).Body, "line,column,code,lastLine\r\n3,nome,TOO_LONG,4\r\n5,nome,ROW_IN_QUOTES,7\r\n9,email,DUPLICATE,10\r\n11,email,DUPLICATE,\r\n"; got != want {
		t.Errorf("verdicts %q, want %q", got, want)
	}
	rows, _ := g.do(t, call{Path: "/mailings/" + id + "/rows"}).json(t)["rows"].([]any)
	table, err := csv.NewReader(strings.NewReader(g.do(t, call{Path: "/mailings/" + id + "/rows?format=csv"}).Body)).ReadAll()
	if err != nil || len(rows) != 6 || len(table) != 7 {
		t.Fatalf("%d rows, and %d in CSV, want 6: %v", len(rows), len(table), err)
	}
	for i, want := range []string{"", "4", "7", "", "10", ""} {
		row, _ := rows[i].(map[string]any)
		last := fmt.Sprint(row["lastLine"])
		if row["lastLine"] == nil {
			last = ""
		}
		if inCSV := table[i+1][len(table[0])-1]; last != want || inCSV != want {
			t.Errorf("row %d has the last line %q, in CSV %q, want %q", i, last, inCSV, want)
		}
	}
}

// The reports shorten the name of the address column, and replace control characters in it, as in other names.
func TestMailing_RowsNameTheEmailColumn(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, given(
		file("\x1be-mail"+strings.Repeat("\u0301", 20_000)+"\na@example.com\nA@example.com\n@example.com\n"),
		part{name: "html", value: "<p>x</p>"}, part{name: "subject", value: "x"},
	))
	name := " e-mail" + strings.Repeat("\u0301", 93) + "…"
	want := "line,column,code,lastLine\r\n3,\"" + name + "\",DUPLICATE,\r\n4,\"" + name + "\",SYNTAX,\r\n"
	if got := g.do(t, call{Path: "/mailings/" + id + "/verdicts"}).Body; got != want {
		t.Errorf("%.500q", got)
	}
}

// Both reports have the delimiter of the request. With another one than a comma they begin with a byte order mark, for Excel.
func TestMailing_ReportDelimiter(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, mailingForm())
	for query, want := range map[string]string{
		"/verdicts": "line,column,code,lastLine\r\n", "/verdicts?delimiter=%2C": "line,column,code,lastLine\r\n",
		"/verdicts?delimiter=%3B": "\ufeffline;column;code;lastLine\r\n", "/verdicts?delimiter=tab": "\ufeffline\tcolumn\tcode\tlastLine\r\n",
		"/rows?format=csv": "line,email,status,", "/rows?format=csv&delimiter=%3B": "\ufeffline;email;status;",
	} {
		if r := g.do(t, call{Path: "/mailings/" + id + query}); r.Status != http.StatusOK || !strings.HasPrefix(r.Body, want) {
			t.Errorf("%s: %d %.100q", query, r.Status, r.Body)
		}
	}
	for query, want := range map[string]string{
		"/verdicts?delimiter=x": "must be one of", "/verdicts?delimeter=%3B": "UNKNOWN_PARAMETER", "/rows?delimiter=%3B": "is only for CSV", "/verdicts?delimiter=;": "write ; as %3B",
	} {
		if r := g.do(t, call{Path: "/mailings/" + id + query}); r.Status != http.StatusUnprocessableEntity && r.Status != http.StatusBadRequest || !strings.Contains(r.Body, want) {
			t.Errorf("%s: %d %s", query, r.Status, r.Body)
		}
	}
}

// A download reads several pages, and none of its cells is a formula.
func TestMailing_RowsOfManyPages(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	var list strings.Builder
	list.WriteString("email;nome\n")
	for n := range 2500 {
		fmt.Fprintf(&list, "+%d@example.com;Ana\n", n)
	}
	id := g.mail(t, given(file(list.String()), part{name: "subject", value: "x"}, part{name: "html", value: "<p>{{nome}}</p>"}))
	table, err := csv.NewReader(strings.NewReader(g.do(t, call{Path: "/mailings/" + id + "/rows?format=csv"}).Body)).ReadAll()
	if err != nil || len(table) != 2501 {
		t.Fatalf("%d rows, %v", len(table), err)
	}
	for n, row := range table[1:] {
		if row[0] != fmt.Sprint(n+2) || row[1] != fmt.Sprintf("'+%d@example.com", n) {
			t.Fatalf("row %d: %q", n, row)
		}
	}
}
