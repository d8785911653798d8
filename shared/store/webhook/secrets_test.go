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
	d, s, sender := newStore(t)
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
	round, err := sender.Load(t.Context(), take(t, sender, id), time.Hour)
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

// A rotation soon after the previous one repeats it: its answer may have been lost, and the receiver has the secret that
// the first one replaced. Later ones replace the secret of the previous one.
func TestRotate_Repeated(t *testing.T) {
	t.Parallel()
	d, s, _ := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	rotate := func(secret string) webhook.Endpoint {
		t.Helper()
		e, err := s.Rotate(t.Context(), company, id, []byte(secret), 24*time.Hour)
		if err != nil || string(e.Secret) != secret {
			t.Fatalf("%+v, %v", e, err)
		}
		return e
	}
	first := rotate("second")
	for _, secret := range []string{"third", "fourth"} {
		if e := rotate(secret); string(e.OldSecret) != "first" || !e.OldSecretUntil.Equal(*first.OldSecretUntil) {
			t.Errorf("%s: %s signs until %v, the first rotation said %v", secret, e.OldSecret, e.OldSecretUntil, first.OldSecretUntil)
		}
	}
	for _, rotated := range []string{"11 min", "-1 h"} { // the latter by a clock that was ahead
		d.Run(t, `UPDATE webhook_endpoints SET secret_enc = 'in use', old_secret_enc = 'first', old_secret_until = now() - $1::interval + interval '24 h'`, rotated)
		if e := rotate("next"); string(e.OldSecret) != "in use" || !e.OldSecretUntil.After(time.Now().Add(23*time.Hour)) {
			t.Errorf("rotated %s ago: %s signs until %v", rotated, e.OldSecret, e.OldSecretUntil)
		}
	}
}

// Encrypting secrets again keeps one that was rotated meanwhile.
func TestReencrypt_RotatedMeanwhile(t *testing.T) {
	t.Parallel()
	d, s, _ := newStore(t)
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
