package main

import (
	"context"
	"database/sql"
	"strings"

	"email-gateway/schema"
)

// makeRoles creates a role for each program. A role gets the password of its variable if there is
// one.
func makeRoles(ctx context.Context, db *sql.DB, getenv func(string) string) error {
	if err := schema.Roles(ctx, db); err != nil {
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
