package environment

import (
	"net/url"
	"slices"
	"strings"
)

// Production is the value of ENVIRONMENT under which demo settings are refused.
const Production = "production"

// IsProduction says whether ENVIRONMENT names an installation that holds real people's data.
func IsProduction(environment string) bool {
	return strings.EqualFold(strings.TrimSpace(environment), Production)
}

// demoKey is the key of docker-compose.yml, which everybody can read.
const demoKey = "ZW1haWwtZ2F0ZXdheS1kZW1vLWtleS0zMi1ieXRlcyE="

// publicPasswords are those of docker-compose.yml.
var publicPasswords = []string{"gateway", "gateway-secret"}

// RefusePublicSecrets adds a fault for each secret that can be read in this project's files,
// if ENVIRONMENT is production.
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
	// A key behind the first one only decrypts what it once encrypted.
	first, _, _ := strings.Cut(values["CPF_CNPJ_KEYS"], ",")
	_, key, _ := strings.Cut(first, ":")
	f.Must(!isPublicKey(key), "CPF_CNPJ_KEYS", rule+"put one of your own in front")
	f.Must(!isPublicKey(values["CPF_CNPJ_HASH_KEY"]), "CPF_CNPJ_HASH_KEY", rule+"make one of your own (openssl rand -base64 32)")
	// Each of these opens links, so that whoever knows one makes links.
	f.Must(!slices.ContainsFunc(strings.Split(values["UNSUBSCRIBE_KEY"], ","), isPublicKey), "UNSUBSCRIBE_KEY", rule+"make one of your own (openssl rand -base64 32)")
	for _, name := range []string{"DATABASE_URL", "DATABASE_LISTEN_URL", "RABBITMQ_URL", "REDIS_URL"} {
		f.Must(!slices.ContainsFunc(passwordsOf(values[name]), isPublicPassword), name, rule+"give the service a password of its own")
	}
	for _, name := range []string{"MONITORING_PASSWORD", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"} {
		f.Must(!isPublicPassword(values[name]), name, rule+"choose one of your own")
	}
}

func isPublicPassword(password string) bool { return slices.Contains(publicPasswords, password) }

// isPublicKey finds the demo key.
func isPublicKey(text string) bool { return strings.TrimSpace(text) == demoKey }

// passwordsOf are the passwords in a URL: before the host, and as the parameter that the
// database's driver prefers.
func passwordsOf(raw string) []string {
	u, err := url.Parse(SplitHosts(raw)[0]) // every host has the same password
	if err != nil {
		return nil // every program refuses such a URL
	}
	passwords := u.Query()["password"]
	if password, has := u.User.Password(); has {
		passwords = append(passwords, password)
	}
	return passwords
}
