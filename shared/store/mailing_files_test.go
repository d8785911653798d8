package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
)

func TestMailingsWithFile(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	ours, theirs := d.Mailing(t, d.Company(t), 1, nil), d.Mailing(t, d.Company(t), 1, nil)
	deleted := d.Mailing(t, d.Company(t), 1, nil)
	d.Run(t, `UPDATE mailings SET file_deleted_at = now() WHERE id = $1`, deleted)
	for name, tt := range map[string]struct {
		ids  []uuid.UUID
		want map[uuid.UUID]bool
	}{
		"of two companies": {[]uuid.UUID{uuid.New(), ours, theirs, uuid.New()}, map[uuid.UUID]bool{ours: true, theirs: true}},
		"deleted":          {[]uuid.UUID{deleted, ours}, map[uuid.UUID]bool{ours: true}},
		"unknown":          {[]uuid.UUID{uuid.New()}, map[uuid.UUID]bool{}},
		"none asked about": {nil, map[uuid.UUID]bool{}},
	} {
		got, err := d.Store.MailingsWithFile(t.Context(), tt.ids)
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}
