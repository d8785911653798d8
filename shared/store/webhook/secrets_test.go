package webhook_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/webhook"
)

// The replaced secret signs too until its time has passed, and is not shown after that.
func TestRotate(t *testing.T) {
	t.Parallel()
	d, s := newStore(t)
	company, other := d.Company(t), d.Company(t)
	id := newEndpoint(t, s, company)
	for range 2 { // the statement may run twice
		if _, err := s.Rotate(t.Context(), company, id, []byte("second"), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if e := find(t, s, company, id); string(e.Secret) != "second" || string(e.OldSecret) != "first" || e.OldSecretUntil == nil {
		t.Errorf("%+v", e)
	}
	round, err := s.Load(t.Context(), take(t, s, id), time.Hour)
	if err != nil || string(round.Secret) != "second" || string(round.OldSecret) != "first" {
		t.Errorf("the sender's secrets: %s, %s, %v", round.Secret, round.OldSecret, err)
	}
	d.Run(t, `UPDATE webhook_endpoints SET old_secret_until = now() WHERE id = $1`, id)
	if e := find(t, s, company, id); e.OldSecret != nil || e.OldSecretUntil != nil {
		t.Errorf("after its time: %+v", e)
	}
	if _, err := s.Rotate(t.Context(), other, id, []byte("theirs"), time.Hour); err == nil {
		t.Error("another company rotated the secret")
	}
}

// Encrypting secrets again keeps one that was rotated meanwhile.
func TestReencrypt_RotatedMeanwhile(t *testing.T) {
	t.Parallel()
	d, s := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	all, err := s.Secrets(t.Context(), uuid.Nil, 10)
	if err != nil || len(all) != 1 || string(all[0].Secret) != "first" || all[0].OldSecret != nil {
		t.Fatalf("%+v, %v", all, err)
	}
	if _, err := s.Rotate(t.Context(), company, id, []byte("second"), time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := s.Reencrypt(t.Context(), all[0], webhook.Secrets{ID: id, Secret: []byte("first, newer key")}); err != nil {
		t.Fatal(err)
	}
	if e := find(t, s, company, id); string(e.Secret) != "second" || string(e.OldSecret) != "first" {
		t.Errorf("%s, %s", e.Secret, e.OldSecret)
	}
	if all, err = s.Secrets(t.Context(), uuid.Nil, 10); err != nil {
		t.Fatal(err)
	}
	if err := s.Reencrypt(t.Context(), all[0], webhook.Secrets{ID: id, Secret: []byte("second, newer key"), OldSecret: []byte("first, newer key")}); err != nil {
		t.Fatal(err)
	}
	if e := find(t, s, company, id); string(e.Secret) != "second, newer key" || string(e.OldSecret) != "first, newer key" {
		t.Errorf("%s, %s", e.Secret, e.OldSecret)
	}
}
