package ctl_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/ctl"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/waittest"
)

// A new key and a successor are shown as they are listed.
func TestKey_IsShownAsListed(t *testing.T) {
	t.Parallel()
	_, by, _ := newTenant(t)
	shown := by.object(t, "key", "create", "--company", "Acme", "--expires", "90d", "--networks", "203.0.113.0/24,192.0.2.7", "--rate", "5", "--burst", "9")
	successor := by.object(t, "key", "rotate", shown["keyId"].(string), "--grace", "1h")
	listed := map[string]map[string]any{}
	for _, k := range by.object(t, "key", "list", "--company", "Acme")["keys"].([]any) {
		row, _ := k.(map[string]any)
		listed[row["keyId"].(string)] = row
	}
	until := listed[shown["keyId"].(string)]["revokedAt"].(string)
	delete(listed[shown["keyId"].(string)], "revokedAt") // it was not revoked when it was shown
	for name, made := range map[string]map[string]any{"create": shown, "rotate": successor} {
		for field, want := range listed[made["keyId"].(string)] {
			if diff := cmp.Diff(want, made[field]); diff != "" {
				t.Errorf("key %s: %s (-listed +shown):\n%s", name, field, diff)
			}
		}
	}
	at, err := time.Parse(time.RFC3339, until)
	replaced, errReplaced := time.Parse(time.RFC3339, successor["replacedUntil"].(string))
	if err != nil || errReplaced != nil || !at.Equal(replaced) {
		t.Errorf("replaced until %v, listed as revoked at %s", successor["replacedUntil"], until)
	}
}

// Both keys are valid during the grace period, only the new one after it.
func TestKeyRotate(t *testing.T) {
	t.Parallel()
	tenant, by, d := newTenant(t)
	old := tenant.env["API_KEY"]
	id := strings.Split(old, "_")[2]
	made := by.object(t, "key", "rotate", old, "--grace", "1h")
	if made["replaces"] != id || made["companyId"] == "" || strings.Contains(by.must(t, "audit", "list", "--json"), made["key"].(string)) {
		t.Errorf("%v", made)
	}
	works := func(key string) bool {
		tenant.env["API_KEY"] = key
		return tenant.run(t, "suppression", "list").code == ctl.ExitOK
	}
	if !works(old) || !works(made["key"].(string)) {
		t.Error("the old or the new key is rejected during the grace period")
	}
	if list := by.must(t, "key", "list", "--company", "Acme"); !strings.Contains(list, "active until ") {
		t.Errorf("%s", list)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE api_keys SET revoked_at = now() - interval '1 s' WHERE key_id = $1`, id); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the old key is refused", func() bool { return !works(old) }) // the api caches keys for 5 s
	if got := by.run(t, "key", "rotate", id); got.code != ctl.ExitFailed || strings.Contains(got.stderr, id) {
		t.Errorf("rotating a revoked key: %+v", got)
	}
	successor := by.object(t, "key", "rotate", made["keyId"].(string), "--grace", "0s")
	by.must(t, "key", "revoke", successor["keyId"].(string), "--reason", "over")
	if got := by.run(t, "key", "rotate", "x", "--grace", "-1h"); got.code != ctl.ExitUsage {
		t.Errorf("%+v", got)
	}
	// Revoking ends the grace period.
	long := by.object(t, "key", "create", "--company", "Acme")
	by.must(t, "key", "rotate", long["keyId"].(string), "--grace", "72h")
	by.must(t, "key", "revoke", long["keyId"].(string), "--reason", "found in a log")
	var revoked bool
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT revoked_at <= now() FROM api_keys WHERE key_id = $1`, long["keyId"]).Scan(&revoked); err != nil || !revoked {
		t.Errorf("revoked: %v, %v", revoked, err)
	}
}

func TestEncryption(t *testing.T) {
	t.Parallel()
	by, d := newOperator(t)
	by.env = map[string]string{"CPF_CNPJ_KEYS": encryptionKey("k2", 2) + "," + encryptionKey("k1", 1), "STORAGE_URL": "file://" + t.TempDir()}
	if status := by.must(t, "encryption", "status"); !strings.Contains(status, "k1   0          removable") {
		t.Errorf("%s", status)
	}
	if got := by.run(t, "encryption", "rotate"); got.code != ctl.ExitUsage {
		t.Errorf("without a reason: %+v", got)
	}
	if v := by.object(t, "encryption", "rotate", "--reason", "yearly"); v["newest"] != "k2" || v["resealed"] != 0.0 {
		t.Errorf("%v", v)
	}
	if audit := by.must(t, "audit", "list", "--action", "encryption"); strings.Contains(audit, "encryption.rotate") {
		t.Errorf("a rotation without work has an audit entry: %s", audit)
	}
	old, err := keyring.Parse(encryptionKey("k1", 1))
	if err != nil {
		t.Fatal(err)
	}
	company := d.Company(t)
	encrypted, err := old.Seal(company, "52998224725")
	if err != nil {
		t.Fatal(err)
	}
	d.Accept(t, company, func(e *outbox.NewEmail) { e.CPFCNPJ = encrypted })
	if v := by.object(t, "encryption", "rotate", "--reason", "yearly"); v["resealed"] != 1.0 {
		t.Errorf("%v", v)
	}
	if audit := by.must(t, "audit", "list", "--action", "encryption"); strings.Count(audit, "encryption.rotate") != 1 || !strings.Contains(audit, "resealed=1") {
		t.Errorf("%s", audit)
	}
}

// encryptionKey is an entry of CPF_CNPJ_KEYS whose 32 bytes are all b.
func encryptionKey(id string, b byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
}

// A damaged value does not prevent the count of the others: status and rotate print it, and report the value with exit code 1.
func TestEncryption_Damaged(t *testing.T) {
	t.Parallel()
	by, d := newOperator(t)
	by.env = map[string]string{"CPF_CNPJ_KEYS": encryptionKey("k2", 2) + "," + encryptionKey("k1", 1), "STORAGE_URL": "file://" + t.TempDir()}
	old, err := keyring.Parse(encryptionKey("k1", 1))
	if err != nil {
		t.Fatal(err)
	}
	company := d.Company(t)
	encrypted, err := old.Seal(company, "52998224725")
	if err != nil {
		t.Fatal(err)
	}
	d.Accept(t, company, func(e *outbox.NewEmail) { e.CPFCNPJ = encrypted })
	damaged := d.Accept(t, company, func(e *outbox.NewEmail) { e.CPFCNPJ = encrypted })
	d.Run(t, `UPDATE email_outbox SET cpf_cnpj_enc = '\x00' WHERE id = $1`, damaged)
	for _, tt := range []struct {
		want    string
		command []string
	}{
		{"k1   1          old", []string{"encryption", "status"}},
		{"1 value was re-encrypted with key k2.", []string{"encryption", "rotate", "--reason", "yearly"}},
		{"k2   1          current", []string{"encryption", "rotate", "--reason", "yearly"}},
		{"k1   0          removable", []string{"encryption", "status"}},
		{`"removable": true`, []string{"encryption", "status", "--json"}},
	} {
		got := by.run(t, tt.command...)
		if got.code != ctl.ExitFailed || !strings.Contains(got.stdout, tt.want) || !strings.Contains(got.stderr, "skipped 1 values that cannot be decrypted") || !strings.Contains(got.stderr, damaged.String()) {
			t.Errorf("%q: %+v, want %q", tt.command, got, tt.want)
		}
	}
}

// Keys with an expiry and networks, from creation to rotation.
func TestKeyLimits(t *testing.T) {
	t.Parallel()
	_, by, d := newTenant(t)
	made := by.object(t, "key", "create", "--company", "Acme", "--expires", "90d", "--networks", "203.0.113.0/24,192.0.2.7")
	ends, err := time.Parse(time.RFC3339, made["expiresAt"].(string))
	if err != nil || time.Until(ends) < 89*24*time.Hour || time.Until(ends) > 91*24*time.Hour || made["revokedAt"] != nil {
		t.Errorf("%v: %v", made, err)
	}
	id := made["keyId"].(string)
	if list := by.must(t, "key", "list", "--company", "Acme"); !strings.Contains(list, "203.0.113.0/24,192.0.2.7/32") || !strings.Contains(list, "active until ") {
		t.Errorf("%s", list)
	}
	if audit := by.must(t, "audit", "list", "--json"); !strings.Contains(audit, "203.0.113.0/24") || !strings.Contains(audit, "expiresAt") {
		t.Errorf("%s", audit)
	}
	// The previous release reads only revoked_at.
	var known bool
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT revoked_at = expires_at FROM api_keys WHERE key_id = $1`, id).Scan(&known); err != nil || !known {
		t.Errorf("older programs: %v, %v", known, err)
	}
	successor := by.object(t, "key", "rotate", id, "--grace", "1h")
	if successor["expiresAt"] == nil || len(successor["networks"].([]any)) != 2 {
		t.Errorf("successor: %v", successor)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE api_keys SET expires_at = now() - interval '1 s', revoked_at = now() - interval '1 s' WHERE key_id = $1`, successor["keyId"]); err != nil {
		t.Fatal(err)
	}
	if list := by.must(t, "key", "list", "--company", "Acme"); !strings.Contains(list, "expired ") {
		t.Errorf("%s", list)
	}
	by.must(t, "key", "revoke", successor["keyId"].(string), "--reason", "over")
	for _, wrong := range [][]string{
		{"--expires", "yesterday"},
		{"--expires", "-1h"},
		{"--expires", "0d"},
		{"--expires", "2020-01-01"},
		{"--expires", "2027-01-31T12:00:00"},
		{"--networks", "203.0.113.9/24"},
		{"--networks", "office"},
		{"--networks", "10.0.0.0/33"},
		{"--networks", ","},
	} {
		if got := by.run(t, append([]string{"key", "create", "--company", "Acme"}, wrong...)...); got.code != ctl.ExitUsage || !strings.Contains(got.stderr, wrong[0]) {
			t.Errorf("%v: %+v", wrong, got)
		}
	}
}
