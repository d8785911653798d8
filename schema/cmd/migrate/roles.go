package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/lib/pq"

	"email-gateway/schema"
)

// makeRoles creates a role for each program. A role gets the password of its variable if there is
// one. Under a newer release the grants stay as they are: a deployment of the previous release
// runs this command too, while programs of the newer one still run.
func makeRoles(ctx context.Context, db *sql.DB, database *url.URL, getenv func(string) string, warnings io.Writer) error {
	passwords, err := newPasswords(ctx, db, database, getenv) // before anything is changed
	if err != nil {
		return err
	}
	switch err := schema.Roles(ctx, db); {
	case errors.Is(err, schema.ErrNewer):
		fmt.Fprintf(warnings, "migrate: warning: %v; the grants stay as they are\n", err)
	case err != nil:
		return err
	}
	return schema.SetPasswords(ctx, db, passwords)
}

// newPasswords returns the passwords to be set, by role. It refuses to replace the password of a role that another
// database of the server uses: the programs of that installation could not log in any more, and those of this one could
// read its tables. A password that the role has already is not refused: a copy of the database must not keep the
// original from being deployed again.
func newPasswords(ctx context.Context, db *sql.DB, database *url.URL, getenv func(string) string) (map[string]string, error) {
	used, err := schema.UsedElsewhere(ctx, db)
	if err != nil {
		return nil, err
	}
	passwords, errs := map[string]string{}, []error(nil)
	for _, role := range schema.LoginRoles() {
		password := getenv(passwordVariable(role))
		switch others := used[role]; {
		case password == "":
		case len(others) == 0:
			passwords[role] = password
		default:
			if err := checkLogin(ctx, database, role, password); err != nil {
				errs = append(errs, fmt.Errorf("the password of the role %s is not changed to that of %[2]s, because other databases of this server use the role: %[3]s. "+
					"Give each installation a Postgres server of its own. If they share the role on purpose, leave %[2]s unset and change the password with ALTER ROLE "+
					"(the login with it failed: %[4]w)", role, passwordVariable(role), strings.Join(others, ", "), err))
			}
		}
	}
	return passwords, errors.Join(errs...)
}

// checkLogin returns nil if the role can connect to the database with the password.
func checkLogin(ctx context.Context, database *url.URL, role, password string) error {
	u := *database
	u.User = url.UserPassword(role, password)
	q := u.Query() // its parameters take precedence
	q.Del("user")
	q.Del("password")
	u.RawQuery = q.Encode()
	connector, err := pq.NewConnector(u.String())
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	return errors.Join(db.PingContext(ctx), db.Close())
}

// passwordVariable returns the name of the variable with a role's password.
func passwordVariable(role string) string { return strings.ToUpper(role) + "_PASSWORD" }
