package main

import (
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/lib/pq"
)

// connect returns the database at the URL. Warnings of the server are written to warnings, one in each line.
func connect(u *url.URL, warnings io.Writer) (*sql.DB, error) {
	// A statement with its parameters takes one round trip: a pooler may run the next one on
	// another connection.
	q := u.Query()
	q.Set("binary_parameters", "yes")
	u.RawQuery = q.Encode()
	connector, err := pq.NewConnector(u.String())
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return sql.OpenDB(pq.ConnectorWithNoticeHandler(connector, func(n *pq.Error) {
		if strings.HasPrefix(string(n.Code), warningClass) { // the severity is in the server's language
			fmt.Fprintln(warnings, "migrate: warning:", n.Message)
		}
	})), nil
}

// warningClass begins the SQLSTATE of a warning.
const warningClass = "01"
