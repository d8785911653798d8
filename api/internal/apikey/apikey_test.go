package apikey_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"email-gateway/api/internal/apikey"
)

func TestNew_CanBeReadBack(t *testing.T) {
	t.Parallel()
	made, err := apikey.New("dev")
	if err != nil {
		t.Fatal(err)
	}
	read, err := apikey.Parse(made.String())
	if err != nil || read != made {
		t.Errorf("Parse(%q) = %+v, %v", made, read, err)
	}
	if !bytes.Equal(read.SecretSHA256(), made.SecretSHA256()) {
		t.Error("the parsed key has another hash than the created one")
	}
	other, err := apikey.New("dev")
	if err != nil || other.ID == made.ID || other.Secret == made.Secret {
		t.Errorf("two created keys are equal: %v, %v, %v", made, other, err)
	}
}

func TestNew_RefusesEnvironments(t *testing.T) {
	t.Parallel()
	for _, environment := range []string{"", "Dev", "a_b", "a-b", strings.Repeat("a", 17), "é"} {
		if key, err := apikey.New(environment); err == nil {
			t.Errorf("New(%q) = %v, want an error", environment, key)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "gw", "gw___", "gw_dev_id", "gw_dev_id_", "gw__id_secret", "gw_dev__secret", "sk_dev_id_secret",
		"gw_dev_id_secret_more", " gw_dev_id_secret", "gw_dev_id_secret\n", "gw_dev_id_se cret", "gw_dev_ID_secret",
		"gw_dev_id_s\x00", "gw_dev_id_ſecret", "gw_dev_id_" + strings.Repeat("a", 250), strings.Repeat("_", 1<<20),
	} {
		if key, err := apikey.Parse(text); !errors.Is(err, apikey.ErrSyntax) {
			t.Errorf("Parse(%.40q) = %v, %v; want ErrSyntax", text, key, err)
		}
	}
}

func TestKey_HidesItsSecretInLogs(t *testing.T) {
	t.Parallel()
	key, err := apikey.New("dev")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("made", "key", key)
	if strings.Contains(log.String(), key.Secret) || !strings.Contains(log.String(), key.ID) {
		t.Errorf("log line: %s", log.String())
	}
}
