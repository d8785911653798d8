package pg_test

import (
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// refuser is a server that answers every connection attempt with an error, as Postgres does.
type refuser struct {
	url  string
	code atomic.Pointer[string] // the SQLSTATE
}

func newRefuser(t *testing.T, code string) *refuser {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	r := &refuser{url: "postgres://gateway@" + listener.Addr().String() + "/gateway?sslmode=disable"}
	r.code.Store(&code)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.refuse(conn)
		}
	}()
	return r
}

func (r *refuser) refuse(conn net.Conn) {
	defer conn.Close()
	var length [4]byte // of the startup message, including these bytes
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(length[:]))-4); err != nil {
		return
	}
	fields := "SFATAL\x00VFATAL\x00C" + *r.code.Load() + "\x00Mrefused by the test\x00\x00"
	answer := binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(fields)+4)) //nolint:gosec // some 50 bytes
	_, _ = conn.Write(append(answer, fields...))
}

// A server that refuses a connection has refused no statement, whatever the SQLSTATE.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	for code, about := range map[string]string{
		"28000": "pg_hba.conf or NOLOGIN", "28P01": "password", "3D000": "no such database", "55000": "ALLOW_CONNECTIONS false",
		"42501": "no right to connect", "0A000": "protocol", "22023": "parameter", "XX000": "internal", "08P01": "pooler", "57P01": "shutdown",
		"57P03": "starting", "53300": "too many connections", "40001": "a race", "55P03": "a lock",
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			server := newRefuser(t, "57P03")
			db, err := pg.Open(t.Context(), server.url, pg.Options{AllowUnreachable: true})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			server.code.Store(&code)

			var n int
			expectUnavailable(t, "read", db.Get(t.Context(), &n, `SELECT 1`), code)
			expectUnavailable(t, "ping", db.Ping(t.Context()), code)
			_, err = db.Exec(t.Context(), `SELECT $1`, 1)
			expectUnavailable(t, "write", err, code)
			expectUnavailable(t, "transaction", db.InTx(t.Context(), func(*sqlx.Tx) error { return nil }), code)
			expectUnavailable(t, "transaction with a COPY", db.InSteadyTx(t.Context(), func(pg.SteadyTx) error { return nil }), code)
			tries := 0
			_, err = pg.Repeat(func() ([]int, error) { tries++; return nil, db.Get(t.Context(), &n, `SELECT 1`) })
			if expectUnavailable(t, "repeated write", err, code); tries != 1 {
				t.Errorf("repeated %d times at once", tries)
			}

			// database/sql repeats a write on another connection if the first one breaks.
			err = pg.Write(func(args []any) error {
				if _, err := args[0].(driver.Valuer).Value(); err != nil { // as the first run does
					return err
				}
				_, err := db.ExecContext(t.Context(), `SELECT $1`, args...)
				return err
			}, 1)
			if !errors.Is(err, pg.ErrUnknownOutcome) || errors.Is(err, pg.ErrUnavailable) {
				t.Errorf("write after an earlier run: %v, want ErrUnknownOutcome", err)
			}
		})
	}
}

func expectUnavailable(t *testing.T, what string, err error, code string) {
	t.Helper()
	if !errors.Is(err, pg.ErrUnavailable) || errors.Is(err, pg.ErrUnknownOutcome) || pg.IsRefusal(err) || pg.IsLockTimeout(err) || !strings.Contains(err.Error(), code) {
		t.Errorf("%s: %v, want ErrUnavailable with %s", what, err, code)
	}
}

// A program ends at its start if every server refuses it for good, and waits for Postgres otherwise.
func TestOpen_Refused(t *testing.T) {
	t.Parallel()
	for code, waits := range map[string]bool{"28000": false, "28P01": false, "3D000": false, "55000": false, "57P03": true, "53300": true} {
		for _, servers := range []int{1, 2} {
			server := newRefuser(t, code)
			address := server.url
			if servers == 2 {
				first := strings.Split(strings.TrimPrefix(address, "postgres://gateway@"), "/")[0]
				address = strings.Replace(address, first, first+","+first, 1)
			}
			_, err := pg.Open(t.Context(), address, pg.Options{})
			if err == nil || errors.Is(err, pg.ErrUnavailable) != waits || !strings.Contains(err.Error(), "refused by the test ("+code+")") {
				t.Errorf("%s from %d servers: %v, want unavailable %v", code, servers, err, waits)
			}
			db, err := pg.Open(t.Context(), address, pg.Options{AllowUnreachable: true})
			if (err == nil) != waits {
				t.Errorf("%s from %d servers: %v, want waiting %v", code, servers, err, waits)
			}
			if err == nil {
				db.Close()
			}
		}
	}
}

// The server that cannot be reached may be the one that accepts the program.
func TestOpen_OneServerRefuses(t *testing.T) {
	t.Parallel()
	server := newRefuser(t, "28P01")
	db, err := pg.Open(t.Context(), strings.Replace(server.url, "@", "@127.0.0.1:1,", 1), pg.Options{AllowUnreachable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	expectUnavailable(t, "ping", db.Ping(t.Context()), "28P01")
}
