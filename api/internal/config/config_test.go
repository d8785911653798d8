package config_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/config"
)

var (
	secret   = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	database = "DATABASE_URL=postgres://gateway:hunter2@db/gateway"
	keys     = "CPF_CNPJ_KEYS=2026:" + secret
)

func TestRead_Defaults(t *testing.T) {
	t.Parallel()
	c, err := config.Read([]string{database, keys, "METRICS_ADDR=", "CPF_CNPJ_HASH_KEY=", "SES_EVENTS_TOPICS=", "SES_EVENTS_TRUSTED_URL="})
	if err != nil {
		t.Fatal(err)
	}
	if c.Addr != "127.0.0.1:8080" || c.EmailTTL != 24*time.Hour || c.Environment != "development" || c.LogLevel != "info" ||
		c.MetricsAddr != "127.0.0.1:9094" || len(c.TrustedProxies) != 0 || c.RabbitMQURL != "" || c.CPFCNPJHashKey != nil ||
		c.StorageURL != "file:///var/lib/email-gateway" || c.PublicURL != "http://127.0.0.1:8080" || !c.UnsubscribeKeys.Empty() ||
		len(c.SESEventsTopics) != 0 || c.SESEventsSHA256Only || c.SESEventsTrustedURL.URL != nil {
		t.Errorf("%+v", c)
	}
	if _, err := c.CPFCNPJKeys.Seal(uuid.New(), "52998224725"); err != nil {
		t.Errorf("the key ring does not work: %v", err)
	}
}

func TestRead_EveryVariable(t *testing.T) {
	t.Parallel()
	c, err := config.Read([]string{
		database, keys, "API_ADDR=:80", "METRICS_ADDR=127.0.0.1:9090", "RABBITMQ_URL=amqp://mq/", "EMAIL_TTL=1h",
		"CPF_CNPJ_HASH_KEY=" + secret, "ENVIRONMENT=staging", "LOG_LEVEL=debug", "UNKNOWN=1",
		"STORAGE_URL=s3://files?region=sa-east-1", "PUBLIC_URL=https://mail.acme.example", "UNSUBSCRIBE_KEY=" + secret,
		"SES_EVENTS_TOPICS=arn:aws:sns:us-east-1:123456789012:a,arn:aws-cn:sns:cn-north-1:123456789012:b_-c",
		"SES_EVENTS_SHA256_ONLY=true", "SES_EVENTS_TRUSTED_URL=http://127.0.0.1:8005/sim", "WEBHOOK_REFUSED_NETWORKS=203.0.113.0/24, 2a05:d014::/36",
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Addr != ":80" || c.MetricsAddr != "127.0.0.1:9090" || c.RabbitMQURL != "amqp://mq/" || c.EmailTTL != time.Hour ||
		len(c.CPFCNPJHashKey) != 32 || c.Environment != "staging" || c.LogLevel != "debug" ||
		c.StorageURL != "s3://files?region=sa-east-1" || c.PublicURL != "https://mail.acme.example" || c.UnsubscribeKeys.Empty() ||
		len(c.SESEventsTopics) != 2 || !c.SESEventsSHA256Only || c.SESEventsTrustedURL.Path != "/sim" ||
		fmt.Sprint(c.WebhookRefusedNetworks) != "[203.0.113.0/24 2a05:d014::/36]" {
		t.Errorf("%+v", c)
	}
}

func TestRead_NamesEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := config.Read([]string{
		"API_ADDR=8080", "METRICS_ADDR=127.0.0.1:port", "DATABASE_URL=mysql://gateway:hunter2@db/gateway", "RABBITMQ_URL=hunter2",
		"EMAIL_TTL=soon", "CPF_CNPJ_KEYS=k:hunter2", "CPF_CNPJ_HASH_KEY=hunter2", "LOG_LEVEL=loud", "OTEL_EXPORTER_OTLP_HEADERS=hunter2",
		"STORAGE_URL=ftp://hunter2@files", "PUBLIC_URL=mail.acme.example", "UNSUBSCRIBE_KEY=hunter2",
		"SES_EVENTS_TOPICS=hunter2", "SES_EVENTS_SHA256_ONLY=maybe", "SES_EVENTS_TRUSTED_URL=ftp://hunter2",
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{
		"API_ADDR:", "METRICS_ADDR:", "DATABASE_URL:", "RABBITMQ_URL:", "EMAIL_TTL:", "CPF_CNPJ_KEYS:", "CPF_CNPJ_HASH_KEY:", "LOG_LEVEL:", "OTEL_EXPORTER_OTLP_HEADERS:",
		"STORAGE_URL:", "PUBLIC_URL:", "UNSUBSCRIBE_KEY:", "SES_EVENTS_TOPICS:", "SES_EVENTS_SHA256_ONLY:", "SES_EVENTS_TRUSTED_URL:",
	} {
		if strings.Count(err.Error(), name) != 1 {
			t.Errorf("the error does not mention %s exactly once: %v", name, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error contains a secret: %v", err)
	}
}

func TestRead_Refuses(t *testing.T) {
	t.Parallel()
	for name, environ := range map[string][]string{
		"DATABASE_URL": {keys}, "CPF_CNPJ_KEYS": {database},
		"EMAIL_TTL":              {database, keys, "EMAIL_TTL=0s"},
		"METRICS_ADDR":           {database, keys, "METRICS_ADDR=127.0.0.1:8080"},
		"CPF_CNPJ_HASH_KEY":      {database, keys, "ENVIRONMENT=production"},
		"SES_EVENTS_TRUSTED_URL": {database, keys, "CPF_CNPJ_HASH_KEY=" + secret, "ENVIRONMENT=Production", "SES_EVENTS_TRUSTED_URL=https://ses-sim:8005"},
		"TRUSTED_PROXIES":        {database, keys, "TRUSTED_PROXIES=10.1.2.3/8"},
		"API_ADDR":               {database, keys, "API_ADDR=127.0.0.1:99999"},

		"WEBHOOK_REFUSED_NETWORKS": {database, keys, "WEBHOOK_REFUSED_NETWORKS=203.0.113.0/24,vpc"},

		"UNSUBSCRIBE_KEY": {database, keys, "RABBITMQ_URL=amqp://mq/"},
	} {
		if _, err := config.Read(environ); err == nil || !strings.Contains(err.Error(), name+":") {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
	demo := []string{database, "CPF_CNPJ_KEYS=demo:ZW1haWwtZ2F0ZXdheS1kZW1vLWtleS0zMi1ieXRlcyE=", "CPF_CNPJ_HASH_KEY=" + secret}
	if _, err := config.Read(append(demo, "ENVIRONMENT=production")); err == nil || !strings.Contains(err.Error(), "CPF_CNPJ_KEYS: is published") {
		t.Errorf("in production, the demo key gives %v, want an error", err)
	}
	if _, err := config.Read(demo); err != nil {
		t.Errorf("outside production, the demo key is rejected: %v", err)
	}
}

func TestRead_PublicURLOfEveryInterface(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{":80": "http://127.0.0.1:80", "0.0.0.0:80": "http://127.0.0.1:80", "[::]:80": "http://127.0.0.1:80", "10.0.0.1:80": "http://10.0.0.1:80"} {
		if c, err := config.Read([]string{database, keys, "API_ADDR=" + addr}); err != nil || c.PublicURL != want {
			t.Errorf("%s: %q %v", addr, c.PublicURL, err)
		}
	}
}

func TestReadAddr(t *testing.T) {
	t.Parallel()
	if addr, err := config.ReadAddr([]string{"API_ADDR=:80"}); addr != ":80" || err != nil {
		t.Error(addr, err)
	}
}
