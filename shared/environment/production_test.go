package environment_test

import (
	"encoding/base64"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"email-gateway/shared/environment"
)

// refused returns the variables that RefusePublicSecrets reports.
func refused(environ ...string) []string {
	var f environment.Faults
	f.RefusePublicSecrets(environ)
	var names []string
	for _, err := range f {
		name, _, _ := strings.Cut(err.Error(), ":")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Every secret with a default in docker-compose.yml is rejected in production, and nowhere else.
func TestRefusePublicSecrets_Compose(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	secret := regexp.MustCompile(`(?m)^\s+(\w+(?:KEYS?|PASSWORD|URL)): \$\{\w+:?-(.*)\}( #.*)?$`)
	var environ, want []string
	for _, found := range secret.FindAllStringSubmatch(string(text), -1) {
		name, value := found[1], found[2]
		if strings.HasPrefix(name, "GATEWAY_") || name == "POSTGRES_PASSWORD" {
			continue // settings of migrate and Postgres are rejected as the PGPASSWORD of their users
		}
		if slices.Contains([]string{"STORAGE_URL", "PUBLIC_URL", "API_URL", "REDIS_URL", "SES_EVENTS_TRUSTED_URL", "GF_SECURITY_ADMIN_PASSWORD", "ROOT_SECRET_KEY", "ROOT_ACCESS_KEY"}, name) || slices.Contains(want, name) {
			continue // no secret, or not ours
		}
		environ, want = append(environ, name+"="+value), append(want, name)
	}
	slices.Sort(want)
	if len(want) < 6 || !slices.Contains(want, "CPF_CNPJ_KEYS") {
		t.Fatalf("compose has secrets for %v only", want)
	}
	if got := refused(append(environ, "ENVIRONMENT=production")...); !slices.Equal(got, want) {
		t.Errorf("refused %v, want %v", got, want)
	}
	if got := refused(append(environ, "ENVIRONMENT=Production")...); !slices.Equal(got, want) {
		t.Errorf("Production: refused %v, want %v", got, want)
	}
	if got := refused(append(environ, "ENVIRONMENT=staging")...); len(got) > 0 {
		t.Errorf("staging: refused %v", got)
	}
}

func TestRefusePublicSecrets(t *testing.T) {
	t.Parallel()
	const demo = "ZW1haWwtZ2F0ZXdheS1kZW1vLWtleS0zMi1ieXRlcyE="
	own := base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))
	for setting, want := range map[string]string{
		"CPF_CNPJ_KEYS=mine:" + own:                                  "",
		"CPF_CNPJ_KEYS=mine:" + own + ",demo:" + demo:                "",
		"CPF_CNPJ_KEYS=mine:" + demo:                                 "CPF_CNPJ_KEYS",
		"UNSUBSCRIBE_KEY=" + own + "," + demo:                        "UNSUBSCRIBE_KEY",
		"UNSUBSCRIBE_KEY=" + own:                                     "",
		"CPF_CNPJ_HASH_KEY=" + demo:                                  "CPF_CNPJ_HASH_KEY",
		"DATABASE_URL=postgres://api:gateway@db/gateway":             "DATABASE_URL",
		"DATABASE_LISTEN_URL=postgres://gateway:gateway@db/gateway":  "DATABASE_LISTEN_URL",
		"DATABASE_URL=postgres://db/gateway?user=u&password=gateway": "DATABASE_URL",
		"DATABASE_URL=postgres://gateway@db/gateway":                 "",
		"DATABASE_URL=postgres://gateway:s3cret@db/gateway":          "",
		"RABBITMQ_URL=amqps://gateway:gateway@mq/":                   "RABBITMQ_URL",
		"RABBITMQ_URL=amqp://gateway:gateway@a:5672,b:5672,c/":       "RABBITMQ_URL",
		"RABBITMQ_URL=amqp://gateway:s3cret@a:5672,b:5672,c/":        "",
		"REDIS_URL=redis://:gateway@redis/0":                         "REDIS_URL",
		"REDIS_URL=redis-sentinel://:gateway@a:1,b:2/0?master=m":     "REDIS_URL",
		"DATABASE_URL=postgres://gateway:gateway@a:5432,b:5432/x":    "DATABASE_URL",
		"MONITORING_PASSWORD=gateway":                                "MONITORING_PASSWORD",
		"AWS_SECRET_ACCESS_KEY=gateway-secret":                       "AWS_SECRET_ACCESS_KEY",
	} {
		if got := strings.Join(refused(setting, "ENVIRONMENT=production"), " "); got != want {
			t.Errorf("%s: refused %q, want %q", setting, got, want)
		}
	}
}
