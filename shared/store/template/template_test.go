package template_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/template"
)

func hello(text string) template.Version {
	return template.Version{Name: "hello", Subject: "s", HTML: text, Variables: "[]"}
}

func TestCreate_Limits(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	s := template.New(d.Store.DB())
	create := func(text string) error {
		_, _, err := s.Create(t.Context(), company, "key:k", hello(text), true)
		return err
	}
	if err := create("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE template_totals SET versions = $1`, template.MaxVersions); err != nil {
		t.Fatal(err)
	}
	if err := create("b"); !errors.Is(err, template.ErrFull) {
		t.Errorf("beyond the versions: %v", err)
	}
	if err := create("a"); err != nil {
		t.Errorf("a version that exists already: %v", err)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE template_totals SET versions = 1, bytes = $1`, template.MaxBytes-3); err != nil {
		t.Fatal(err)
	}
	if err := create("b"); !errors.Is(err, template.ErrFull) {
		t.Errorf("beyond the bytes: %v", err)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE template_totals SET bytes = 4`); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), company, "key:k", template.ID{Name: "hello"}); err != nil {
		t.Fatal(err)
	}
	var versions, bytes int
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT versions, bytes FROM template_totals`).Scan(&versions, &bytes); err != nil || versions != 0 || bytes != 0 {
		t.Errorf("%d versions and %d bytes are left, %v", versions, bytes, err)
	}
	if _, _, err := s.Resolve(t.Context(), company, "hello", []string{""}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}

// Versions of one template that are created at once get different numbers.
func TestCreate_AtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	s := template.New(d.Store.DB())
	numbers := make(chan int, 8)
	for i := range cap(numbers) {
		go func() {
			made, _, err := s.Create(context.WithoutCancel(t.Context()), company, "key:k", hello(strings.Repeat("a", i+1)), false)
			if err != nil {
				t.Error(err)
			}
			numbers <- made.Version
		}()
	}
	seen := map[int]bool{}
	for range cap(numbers) {
		seen[<-numbers] = true
	}
	if len(seen) != cap(numbers) {
		t.Errorf("%v", seen)
	}
}

// The log keeps the template of an email whose outbox row is purged.
func TestEmail_KeepsItsTemplate(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, func(e *outbox.NewEmail) {
		e.Template, e.SendAt = "invoice/pt@2", time.Now().Add(time.Hour)
	})
	plain := d.Accept(t, company, func(e *outbox.NewEmail) { e.SendAt = time.Now().Add(time.Hour) })
	for _, step := range []string{`SELECT 1`, `DELETE FROM email_outbox`} {
		if _, err := d.SQL.ExecContext(t.Context(), step); err != nil {
			t.Fatal(err)
		}
		for of, want := range map[uuid.UUID]string{id: "invoice/pt@2", plain: ""} {
			found, err := d.Store.FindEmail(t.Context(), company, of)
			got := ""
			if found.Template != nil {
				got = *found.Template
			}
			if err != nil || got != want {
				t.Errorf("after %s: %q, %v, want %q", step, got, err, want)
			}
		}
	}
}

// A company that creates and deletes templates, or publishes versions in turn, stores a limited number of rows.
func TestRows_AreLimited(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	s := template.New(d.Store.DB())
	for _, c := range []uuid.UUID{company, other} {
		if _, err := d.SQL.ExecContext(t.Context(), `
INSERT INTO template_events (company_id, name, locale, version, action, actor) SELECT $1, 'hello', '', n, 'PUBLISHED', 'key:k' FROM generate_series(1, 1500) n`, c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.SQL.ExecContext(t.Context(), `
INSERT INTO templates (company_id, name, locale, latest, deleted_at) SELECT $1, 'gone-' || n, '', 3, now() FROM generate_series(1, $2::integer) n`, company, template.MaxNames-1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Create(t.Context(), company, "key:k", hello("a"), true); err != nil {
		t.Fatal(err)
	}
	events := func(c uuid.UUID) (n int) {
		if err := d.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM template_events WHERE company_id = $1`, c).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := events(company); n != 1000 {
		t.Errorf("%d events are kept", n)
	}
	if n := events(other); n != 1500 {
		t.Errorf("%d events of another company are kept", n)
	}
	named := func(name string) error {
		v := hello("a")
		v.Name = name
		_, _, err := s.Create(t.Context(), company, "key:k", v, false)
		return err
	}
	if err := named("one-more"); !errors.Is(err, template.ErrFull) {
		t.Errorf("a name too many: %v", err)
	}
	if err := named("gone-7"); err != nil {
		t.Errorf("the name of a deleted template: %v", err)
	}
	if err := s.Delete(t.Context(), company, "key:k", template.ID{Name: "hello"}); err != nil {
		t.Fatal(err)
	}
	if newest, err := s.History(t.Context(), company, "hello", 1); err != nil || newest[0].Action != "DELETED" || events(company) > 1001 {
		t.Errorf("%+v, %v", newest, err)
	}
}

// A publication that waits for a deletion in another transaction publishes no version that is deleted then.
func TestPublish_DuringDelete(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	s := template.New(d.Store.DB())
	if _, _, err := s.Create(t.Context(), company, "key:k", hello("a"), false); err != nil {
		t.Fatal(err)
	}
	// The last statement of Delete inserts an event, which waits for this lock.
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `LOCK TABLE template_events IN SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	deleted, published := make(chan error, 1), make(chan error, 1)
	go func() { deleted <- s.Delete(ctx, company, "key:k", template.ID{Name: "hello"}) }()
	storetest.WaitBlocked(t, d, 1)
	go func() {
		_, err := s.Publish(ctx, company, "key:k", template.ID{Name: "hello"}, 1)
		published <- err
	}()
	storetest.WaitBlocked(t, d, 2)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	if err := <-published; !errors.Is(err, store.ErrNotFound) {
		t.Errorf("published: %v", err)
	}
	if _, version, err := s.Resolve(t.Context(), company, "hello", []string{""}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("version %d is published, %v", version, err)
	}
	if n := storetest.Ask[int](t, d, `SELECT count(*) FROM template_events WHERE action = 'PUBLISHED'`); n != 0 {
		t.Errorf("%d events of publications", n)
	}
}

// A version is found in the first of the locales that has it, and no longer once its template is deleted.
func TestResolveVersion(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	s := template.New(d.Store.DB())
	for _, locale := range []string{"", "pt"} {
		for _, text := range []string{"a", "b"} {
			v := hello(text + locale)
			v.Locale = locale
			if locale == "pt" && text == "b" {
				continue // the version 2 exists in the default locale only
			}
			if _, _, err := s.Create(t.Context(), company, "key:k", v, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		company uuid.UUID
		locales []string
		version int
		want    string // the locale; "none" = pg.ErrNotFound
	}{
		{company, []string{"pt-BR", "pt", ""}, 1, "pt"},
		{company, []string{"pt-BR", "pt", ""}, 2, ""},
		{company, []string{"pt"}, 2, "none"},
		{company, []string{""}, 3, "none"},
		{other, []string{"pt", ""}, 1, "none"},
	} {
		id, err := s.ResolveVersion(t.Context(), tt.company, "hello", tt.locales, tt.version)
		if tt.want == "none" && errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil || id != (template.ID{Name: "hello", Locale: tt.want}) {
			t.Errorf("version %d in %q: %+v, %v, want %q", tt.version, tt.locales, id, err, tt.want)
		}
	}
	if err := s.Delete(t.Context(), company, "key:k", template.ID{Name: "hello", Locale: "pt"}); err != nil {
		t.Fatal(err)
	}
	if id, err := s.ResolveVersion(t.Context(), company, "hello", []string{"pt", ""}, 1); err != nil || id.Locale != "" {
		t.Errorf("after the deletion of pt: %+v, %v", id, err)
	}
}
