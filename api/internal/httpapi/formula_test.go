package httpapi_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Column names are chosen by the author of the file, and shown in a list that another person opens in a
// spreadsheet.
func TestMailing_ColumnsAreNoFormulas(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	body, subject := part{name: "html", value: "<p>x</p>"}, part{name: "subject", value: "x"}
	for i, column := range []string{"=CPF", "+CPF", "-CPF", "@CPF", "\tCPF", "\"\rCPF\"", "\"=CPF\"", "=cmd|' /C calc'!A1"} {
		name := part{name: "name", value: fmt.Sprint("file ", i)}
		r := g.upload(t, given(file("email;"+column+";nome\na@example.com;111.111.111-11;Ana\n"), body, subject, name), nil)
		if r.Status != http.StatusAccepted {
			t.Errorf("%q: %d %s", column, r.Status, r.Body)
			continue
		}
		id, _ := r.json(t)["mailingId"].(string)
		g.Run(t, `INSERT INTO mailing_rejects (mailing_id, line_no, column_name, code) VALUES ($1, 9, $2, 'X')`, id, strings.Trim(column, `"`))
		rows, err := csv.NewReader(strings.NewReader(g.do(t, call{Path: "/mailings/" + id + "/verdicts"}).Body)).ReadAll()
		if err != nil || len(rows) < 2 {
			t.Fatalf("%q: %q %v", column, rows, err)
		}
		for _, cell := range rows[1:] {
			if strings.ContainsAny(cell[1][:1], "=+-@\t\r\n") {
				t.Errorf("%q: a cell begins with %q", column, cell[1])
			}
		}
	}
}
