package file_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store/file"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
)

// Stored files count until they are deleted, folded or not.
func TestFiles_Quota(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	limit := int64(300)
	if err := d.Store.SetQuotas(t.Context(), storetest.Operator(), company, map[quota.Quota]*int64{quota.StoredFileBytes: &limit}); err != nil {
		t.Fatal(err)
	}
	check := func(step string, company uuid.UUID, want int64) {
		t.Helper()
		for _, folded := range []bool{false, true} {
			all, err := d.Store.CompanyQuotas(t.Context(), company)
			if err != nil {
				t.Fatal(err)
			}
			if u := all[slices.IndexFunc(all, func(u quota.Use) bool { return u.Quota == quota.StoredFileBytes })]; u.Use != want {
				t.Errorf("%s, folded: %v: %d bytes, want %d", step, folded, u.Use, want)
			}
			if _, err := d.Store.FoldQuotas(t.Context(), 100, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	a := add(t, d, company, 1)
	add(t, d, company, 1) // it is stored already
	add(t, d, company, 2)
	add(t, d, other, 1)
	check("two files", company, 200)
	check("of another company", other, 100)
	third := storedFile(company, 3)
	third.Bytes = 101
	_, err := d.Store.AddFile(t.Context(), third)
	if over, ok := errors.AsType[*quota.Error](err); !ok || over.Quota != quota.StoredFileBytes || over.Use != 200 {
		t.Errorf("a file beyond the quota: %v", err)
	}
	if _, err := file.New(d.Store.DB()).DeleteErased(t.Context(), company, []uuid.UUID{a.ID}); err != nil {
		t.Fatal(err)
	}
	check("one is deleted", company, 100)
	if _, err := d.Store.AddFile(t.Context(), third); err != nil {
		t.Error(err)
	}
	check("another one", company, 201)
}

// A company that is far from its quota adds a file without the lock of its quotas, and reading the use of a quota reads no files.
func TestFiles_QuotaWithoutLock(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	hold := func(statement string) {
		t.Helper()
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	hold(`SELECT FROM quota_totals FOR UPDATE`)
	add(t, d, company, 1)
	hold(`LOCK TABLE stored_files`)
	d.Run(t, `SET lock_timeout = '1ms'; SELECT email_gateway_use('`+company.String()+`', true); RESET lock_timeout`)
}
