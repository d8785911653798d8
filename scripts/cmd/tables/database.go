package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	_ "github.com/lib/pq"

	"email-gateway/schema"
	"email-gateway/shared/store"
)

// database is one of our own, migrated, with one company.
type database struct {
	server, name string
	sql          *sql.DB
	store        *store.Store
	company      uuid.UUID
}

func newDatabase(ctx context.Context, server string) (d *database, err error) {
	d = &database{server: server, name: "tables_" + strings.ReplaceAll(uuid.NewString(), "-", "")}
	if err := execute(ctx, server, "CREATE DATABASE "+d.name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.drop())
		}
	}()
	u, err := url.Parse(server)
	if err != nil {
		return d, errors.New("DATABASE_URL is no URL")
	}
	u.Path = "/" + d.name
	if d.sql, err = sql.Open("postgres", u.String()); err != nil {
		return d, fmt.Errorf("open database: %w", err)
	}
	if err := schema.Up(ctx, d.sql); err != nil {
		return d, err
	}
	if d.store, err = store.Open(ctx, u.String(), store.Options{}); err != nil {
		return d, err
	}
	d.company = uuid.Must(uuid.NewV7())
	return d, d.store.CreateCompany(ctx, store.Operator{Name: "tables"}, store.NewCompany{ID: d.company, Name: "Acme", DefaultFrom: "a@acme.example"})
}

// drop ends the database, whatever became of its connections. The context of the run may
// be over by then.
func (d *database) drop() error {
	var err error
	if d.store != nil {
		err = d.store.Close()
	}
	if d.sql != nil {
		err = errors.Join(err, d.sql.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(err, execute(ctx, d.server, "DROP DATABASE IF EXISTS "+d.name+" WITH (FORCE)"))
}

// exec runs statements one after the other.
func (d *database) exec(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := d.sql.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.60s…: %w", strings.TrimSpace(statement), err)
		}
	}
	return nil
}

func execute(ctx context.Context, databaseURL, statement string) error {
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		return fmt.Errorf("open server: %w", err)
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}
