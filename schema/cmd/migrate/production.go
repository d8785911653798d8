package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"email-gateway/schema"
)

// publicPasswords are the passwords of docker-compose.yml. Package environment of the module shared
// has the same list for the other programs; this module depends on no other module.
var publicPasswords = []string{"gateway", "gateway-secret"}

// refusePublicPasswords returns an error if ENVIRONMENT is production and a password of the
// database, or one that roles would set, is published in this project's files.
func refusePublicPasswords(getenv func(string) string, database *url.URL) error {
	if !strings.EqualFold(strings.TrimSpace(getenv("ENVIRONMENT")), "production") {
		return nil
	}
	// In the user info, and as the parameter that the driver prefers.
	ofURL := database.Query()["password"]
	if password, has := database.User.Password(); has {
		ofURL = append(ofURL, password)
	}
	passwords := map[string][]string{"DATABASE_URL": ofURL, "PGPASSWORD": {getenv("PGPASSWORD")}}
	for _, role := range schema.LoginRoles() {
		name := passwordVariable(role)
		passwords[name] = []string{getenv(name)}
	}
	var errs []error
	for name, of := range passwords {
		if slices.ContainsFunc(of, func(p string) bool { return slices.Contains(publicPasswords, p) }) {
			errs = append(errs, fmt.Errorf("%s: its password is published in this project's files, which ENVIRONMENT=production does not allow: choose one of your own", name))
		}
	}
	return errors.Join(errs...)
}
