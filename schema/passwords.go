package schema

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/lib/pq"
)

// usedElsewhereSQL reads Postgres's system catalogs, which every role may read, and locks nothing. A role that has any
// right in a database has a row in pg_shdepend: roles.sql grants each one the schema.
const usedElsewhereSQL = `
SELECT r.rolname, array_agg(DISTINCT b.datname::text ORDER BY b.datname::text)
FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid JOIN pg_database b ON b.oid = d.dbid
WHERE d.refclassid = 'pg_authid'::regclass AND b.datname <> current_database() AND r.rolname = ANY ($1)
GROUP BY r.rolname`

// UsedElsewhere returns the login roles that other databases of the server use, with the names of these databases: a
// role and its password belong to the server.
func UsedElsewhere(ctx context.Context, db *sql.DB) (map[string][]string, error) {
	rows, err := db.QueryContext(ctx, usedElsewhereSQL, pq.Array(LoginRoles()))
	if err != nil {
		return nil, fmt.Errorf("look for roles of other databases: %w", err)
	}
	defer rows.Close()
	databases := map[string][]string{}
	for rows.Next() {
		var role string
		var names []string
		if err := rows.Scan(&role, pq.Array(&names)); err != nil {
			return nil, fmt.Errorf("look for roles of other databases: %w", err)
		}
		databases[role] = names
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look for roles of other databases: %w", err)
	}
	return databases, nil
}

// installationSQL reads the one row of its table, and locks nothing.
const installationSQL = `SELECT id::text FROM installation`

// SetPasswords sets the passwords of roles, by their names. Postgres gets only SCRAM-SHA-256 verifiers of them, the
// same ones for the same passwords. The caller must be allowed to alter the roles, and to read the table installation.
// Any number of callers may run it concurrently, also with Up and Roles: Postgres refuses concurrent changes of one
// role.
func SetPasswords(ctx context.Context, db *sql.DB, passwords map[string]string) (err error) {
	if len(passwords) == 0 {
		return nil
	}
	var lock migrationLock
	if err := lock.acquire(ctx, db); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx, db)) }()
	var installation string
	if err := db.QueryRowContext(ctx, installationSQL).Scan(&installation); err != nil {
		return fmt.Errorf("read the id of the installation: %w", err)
	}
	for role, password := range passwords {
		verifier, err := verifierOf(password, saltOf(installation, role))
		if err != nil {
			return fmt.Errorf("set the password of %s: %w", role, err)
		}
		if _, err := db.ExecContext(ctx, "ALTER ROLE "+pq.QuoteIdentifier(role)+" PASSWORD "+pq.QuoteLiteral(verifier)); err != nil {
			return fmt.Errorf("set the password of %s: %w (if the provider of the server refuses SCRAM-SHA-256 verifiers, as Neon does, "+
				"leave %s_PASSWORD unset and set the password with the provider's console, its API or ALTER ROLE)", role, err, strings.ToUpper(role))
		}
	}
	return nil
}

// verifierForm is the form that Postgres recognizes as a verifier and stores as it is.
var verifierForm = regexp.MustCompile(`^SCRAM-SHA-256\$[1-9][0-9]*:[A-Za-z0-9+/]+=*\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}=$`)

// verifierOf returns a password that is a verifier already as it is, so that the environment of `migrate roles` need
// not contain the passwords.
func verifierOf(password string, salt []byte) (string, error) {
	if verifierForm.MatchString(password) {
		return password, nil
	}
	return scramVerifier(password, salt)
}

// saltOf returns the salt of a role: always the same one, because a PgBouncer with a copy of the role's verifier can log
// in only while both are identical. A salt need not be secret, only differ between roles and installations.
func saltOf(installation, role string) []byte {
	mac := hmac.New(sha256.New, []byte(installation))
	mac.Write([]byte(role))
	return mac.Sum(nil)[:16] // as long as Postgres's own
}

// scramVerifier returns what Postgres stores for a password (RFC 5803). Postgres logs statements that fail, and others by its
// settings, so the statement must not contain the password. Like the driver at a login, it does not normalize the password
// (SASLprep): that changes only few texts that are not ASCII, with which the driver could not log in.
func scramVerifier(password string, salt []byte) (string, error) {
	const iterations = 4096 // Postgres's default
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	keyed := func(text string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(keyed("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt), encode(stored[:]), encode(keyed("Server Key"))), nil
}
