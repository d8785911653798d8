package environment

import (
	"net/url"
	"slices"
	"strings"
)

// Production is the value of ENVIRONMENT that rejects demo settings.
const Production = "production"

// IsProduction reports whether ENVIRONMENT is a production installation.
func IsProduction(environment string) bool {
	return strings.EqualFold(strings.TrimSpace(environment), Production)
}

// demoKey is the published key of docker-compose.yml.
const demoKey = "ZW1haWwtZ2F0ZXdheS1kZW1vLWtleS0zMi1ieXRlcyE="

// publicPasswords are the published passwords of docker-compose.yml.
var publicPasswords = []string{"gateway", "gateway-secret"}

// RefusePublicSecrets adds a fault for each secret that is published in this project's files, if
// ENVIRONMENT is production.
func (f *Faults) RefusePublicSecrets(environ []string) {
	values := map[string]string{}
	for _, line := range environ {
		if name, value, ok := strings.Cut(line, "="); ok {
			values[name] = value
		}
	}
	if !IsProduction(values["ENVIRONMENT"]) {
		return
	}
	const rule = "is published in this project's files, which ENVIRONMENT=production does not allow: "
	// A key after the first one only decrypts old data.
	first, _, _ := strings.Cut(values["CPF_CNPJ_KEYS"], ",")
	_, key, _ := strings.Cut(first, ":")
	f.Must(!isPublicKey(key), "CPF_CNPJ_KEYS", rule+"put one of your own in front")
	f.Must(!isPublicKey(values["CPF_CNPJ_HASH_KEY"]), "CPF_CNPJ_HASH_KEY", rule+"make one of your own (openssl rand -base64 32)")
	// Each of these keys makes valid links.
	f.Must(!slices.ContainsFunc(strings.Split(values["UNSUBSCRIBE_KEY"], ","), isPublicKey), "UNSUBSCRIBE_KEY", rule+"make one of your own (openssl rand -base64 32)")
	for _, name := range []string{"DATABASE_URL", "DATABASE_LISTEN_URL", "RABBITMQ_URL", "REDIS_URL"} {
		f.Must(!slices.ContainsFunc(passwordsOf(values[name]), isPublicPassword), name, rule+"give the service a password of its own")
	}
	for _, name := range []string{"MONITORING_PASSWORD", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"} {
		f.Must(!isPublicPassword(values[name]), name, rule+"choose one of your own")
	}
}

func isPublicPassword(password string) bool { return slices.Contains(publicPasswords, password) }

// isPublicKey reports whether text is the demo key.
func isPublicKey(text string) bool { return strings.TrimSpace(text) == demoKey }

// passwordsOf returns the passwords in a URL: before the host, and as the parameter that the
// database's driver prefers.
func passwordsOf(raw string) []string {
	u, err := url.Parse(SplitHosts(raw)[0]) // all hosts have the same password
	if err != nil {
		return nil // every program rejects such a URL
	}
	passwords := u.Query()["password"]
	if password, has := u.User.Password(); has {
		passwords = append(passwords, password)
	}
	return passwords
}
