package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
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
	return sql.OpenDB(unlimited{pq.ConnectorWithNoticeHandler(connector, func(n *pq.Error) {
		if strings.HasPrefix(string(n.Code), warningClass) { // the severity is in the server's language
			fmt.Fprintln(warnings, "migrate: warning:", n.Message)
		}
	})}), nil
}

// warningClass begins the SQLSTATE of a warning.
const warningClass = "01"

// unlimited connects without limits of time for statements, and with the settings that the schema needs.
type unlimited struct{ driver.Connector }

// unlimitedSQL turns off the limits that an administrator has set for the database or the role: an index of a large table
// takes hours. A limit in the URL stays. It also sets what every connection of a program has (requiredSettings in
// shared/store/internal/pg): the tables are in the schema public, also if the owner has a schema of its own name. These
// are not parameters of the connection, because PgBouncer refuses those.
const unlimitedSQL = `
SELECT set_config(name, '0', false) FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout') AND source <> 'client'
UNION ALL SELECT set_config('search_path', 'public', false)
UNION ALL SELECT set_config('default_transaction_isolation', 'read committed', false)
UNION ALL SELECT set_config('TimeZone', 'UTC', false)`

func (c unlimited) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver's %T lacks an interface", conn), conn.Close())
	}
	if _, err := execer.ExecContext(ctx, unlimitedSQL, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the connection: %w", err), conn.Close())
	}
	return conn, nil
}
