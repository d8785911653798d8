package pg

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
)

// Copy is a running COPY … FROM STDIN. Its rows are written here, in the
// text format, and passed to lib/pq in chunks: database/sql
// boxes, inspects and converts each value, which takes 18 allocations for a row of an upload. This allocates
// only the chunks, and saves a quarter of the api's time for a row.
//
// A row is its values in the order of the columns, then EndRow.
type Copy struct {
	conn *sqlx.Conn
	to   copyStream
	rows []byte // not sent yet; each value ends with a tab, or a line end if it is the row's last
}

// copyStream is lib/pq's statement of a COPY. CopyData copies what it is given.
type copyStream interface {
	CopyData(ctx context.Context, rows string) (driver.Result, error)
	Exec(none []driver.Value) (driver.Result, error) // ends the COPY and waits for what came of it
	Close() error
}

// copyPiece is how many bytes are handed over at once, or somewhat more: what lib/pq
// makes one message of. It has room for another KiB then, which rows as most are fit in.
const copyPiece = 63 << 10

// BeginCopy begins a COPY in the transaction that is open on the connection. Until it
// is ended or abandoned nothing else may be sent there.
func BeginCopy(ctx context.Context, conn *sqlx.Conn, statement string) (*Copy, error) {
	c := &Copy{conn: conn, rows: make([]byte, 0, copyPiece+1<<10)}
	err := c.raw(func(driverConn any) error {
		preparer, ok := driverConn.(driver.ConnPrepareContext)
		if !ok {
			return fmt.Errorf("the driver's %T prepares nothing", driverConn)
		}
		prepared, err := preparer.PrepareContext(ctx, statement)
		if err != nil {
			return err
		}
		if c.to, ok = prepared.(copyStream); !ok {
			return errors.Join(fmt.Errorf("the driver's %T is no COPY", prepared), prepared.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// raw is sqlx.Conn.Raw, which waits for ever when it is to return driver.ErrBadConn: it
// closes the connection then, and that waits for the transaction to end.
func (c *Copy) raw(do func(driverConn any) error) error {
	var failed error
	err := c.conn.Raw(func(driverConn any) error {
		failed = do(driverConn)
		return nil
	})
	return errors.Join(err, failed)
}

func (c *Copy) UUID(id uuid.UUID) {
	c.rows = append(hex.AppendEncode(c.rows, id[:]), '\t')
}

func (c *Copy) BigInt(n int64) {
	c.rows = append(strconv.AppendInt(c.rows, n, 10), '\t')
}

func (c *Copy) Text(s string) {
	for i := range len(s) {
		c.rows = appendCopied(c.rows, s[i])
	}
	c.rows = append(c.rows, '\t')
}

// OptionalText is text with NULL for "".
func (c *Copy) OptionalText(s string) {
	if s == "" {
		c.Null()
		return
	}
	c.Text(s)
}

// OptionalBytea has NULL for nil.
func (c *Copy) OptionalBytea(b []byte) {
	if b == nil {
		c.Null()
		return
	}
	c.rows = append(c.rows, `\\x`...)
	c.rows = append(hex.AppendEncode(c.rows, b), '\t')
}

func (c *Copy) Null() { c.rows = append(c.rows, '\\', 'N', '\t') }

// Texts adds an array of texts. Each is cleaned as mailing.NewEntry says.
func (c *Copy) Texts(values []string) {
	c.rows = append(c.rows, '{')
	for i, value := range values {
		if i > 0 {
			c.rows = append(c.rows, ',')
		}
		c.rows = append(c.rows, '"')
		value = WithoutNUL(value)
		for j := range len(value) {
			if value[j] == '"' || value[j] == '\\' {
				c.rows = append(c.rows, `\\`...) // the array's own backslash
			}
			c.rows = appendCopied(c.rows, value[j])
		}
		c.rows = append(c.rows, '"')
	}
	c.rows = append(c.rows, '}', '\t')
}

// appendCopied appends a byte of a value as COPY reads it.
func appendCopied(rows []byte, b byte) []byte {
	switch b {
	case '\\':
		return append(rows, '\\', '\\')
	case '\t':
		return append(rows, '\\', 't')
	case '\n':
		return append(rows, '\\', 'n')
	case '\r':
		return append(rows, '\\', 'r')
	}
	return append(rows, b)
}

// EndRow may return an error of earlier rows.
func (c *Copy) EndRow(ctx context.Context) error {
	c.rows[len(c.rows)-1] = '\n'
	if len(c.rows) < copyPiece {
		return nil
	}
	return c.send(ctx)
}

// send sends all rows. The end of ctx does not stop it: lib/pq would close the
// connection, on which the caller wants to roll back.
func (c *Copy) send(ctx context.Context) error {
	if len(c.rows) == 0 {
		return nil
	}
	rows := string(c.rows[:len(c.rows)-1]) // lib/pq adds the last line end
	c.rows = c.rows[:0]
	return c.raw(func(any) error {
		_, err := c.to.CopyData(context.WithoutCancel(ctx), rows)
		return err
	})
}

// End sends the rest and waits until Postgres has taken all. Nothing is open any more,
// whatever it returns: after a refusal lib/pq still reads on, and only Close waits for that.
func (c *Copy) End(ctx context.Context) error {
	err := c.send(ctx)
	if err == nil {
		err = c.raw(func(any) error {
			_, err := c.to.Exec(nil)
			return err
		})
	}
	if err != nil {
		_ = c.Abandon() // it returns the same error again
	}
	return err
}

// Abandon ends a COPY whose transaction is rolled back for another reason.
func (c *Copy) Abandon() error {
	return c.raw(func(any) error { return c.to.Close() })
}
