package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"

	"email-gateway/schema"
)

// makeRoles creates a role for each program. A role gets the password of its variable if there is
// one. Under a newer release the grants stay as they are: a deployment of the previous release
// runs this command too, while programs of the newer one still run.
func makeRoles(ctx context.Context, db *sql.DB, getenv func(string) string, warnings io.Writer) error {
	switch err := schema.Roles(ctx, db); {
	case errors.Is(err, schema.ErrNewer):
		fmt.Fprintf(warnings, "migrate: warning: %v; the grants stay as they are\n", err)
	case err != nil:
		return err
	}
	for _, role := range schema.LoginRoles() {
		if password := getenv(passwordVariable(role)); password != "" {
			if err := schema.SetPassword(ctx, db, role, password); err != nil {
				return err
			}
		}
	}
	return nil
}

// passwordVariable returns the name of the variable with a role's password.
func passwordVariable(role string) string { return strings.ToUpper(role) + "_PASSWORD" }
