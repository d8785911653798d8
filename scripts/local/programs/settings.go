package programs

import (
	"crypto/rand"
	"encoding/base64"
)

// Settings returns the settings that any gateway on this machine needs, with new keys. They do not
// have the addresses of its services.
func Settings() map[string]string {
	return map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "gateway", "AWS_SECRET_ACCESS_KEY": "gateway-secret", // of the S3 server; SES accepts any
		"CPF_CNPJ_KEYS": "local:" + Secret(), "UNSUBSCRIBE_KEY": Secret(),
		"MX_RESOLVER": "off", // it needs an internet connection
		"PUBLIC_URL":  "https://mail.gateway.example",
	}
}

// Secret returns a random key of 32 bytes in base64.
func Secret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}
