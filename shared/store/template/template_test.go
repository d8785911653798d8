package template_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
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
		t.Errorf("what is there already: %v", err)
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
			number, _, err := s.Create(context.WithoutCancel(t.Context()), company, "key:k", hello(strings.Repeat("a", i+1)), false)
			if err != nil {
				t.Error(err)
			}
			numbers <- number
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
	id := d.Accept(t, company, func(e *store.NewEmail) {
		e.Template, e.SendAt = "invoice/pt@2", time.Now().Add(time.Hour)
	})
	plain := d.Accept(t, company, func(e *store.NewEmail) { e.SendAt = time.Now().Add(time.Hour) })
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
