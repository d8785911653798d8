package sessim

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // what SNS signs version 1 with
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/sessim/sesmail"
)

// topic signs messages as SNS does, with its own key and certificate.
type topic struct {
	Publication
	key   *rsa.PrivateKey
	pem   []byte
	token string // of the subscription
}

// Paths of SNS's resources below the base URL.
const (
	certificatePath = "/sim/sns/SimpleNotificationService-simulator.pem"
	confirmPath     = "/sim/sns/confirm"
)

func newTopic(p Publication, now time.Time) (*topic, error) {
	p, err := p.withDefaults()
	if err != nil {
		return nil, err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "sns.amazonaws.com"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &topic{
		Publication: p, key: key, token: strings.ReplaceAll(sesmail.NewRequestID(), "-", ""),
		pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// envelope returns a signed SNS message of the type. The signature includes the names and values of
// extra.
func (t *topic) envelope(kind, message string, now time.Time, extra map[string]string) ([]byte, error) {
	fields := map[string]string{
		"Type": kind, "MessageId": sesmail.NewRequestID(), "TopicArn": t.TopicARN, "Message": message,
		"Timestamp": now.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	for name, value := range extra {
		fields[name] = value
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		text.WriteString(name + "\n" + fields[name] + "\n")
	}
	signature, err := t.sign(text.String())
	if err != nil {
		return nil, err
	}
	fields["SignatureVersion"], fields["Signature"] = t.SignatureVersion, signature
	fields["SigningCertURL"] = t.BaseURL + certificatePath
	if kind == "Notification" {
		fields["UnsubscribeURL"] = t.BaseURL + "/sim/sns/unsubscribe"
	}
	return json.Marshal(fields)
}

func (t *topic) sign(text string) (string, error) {
	hash, sum256 := crypto.SHA256, sha256.Sum256([]byte(text))
	digest := sum256[:]
	if t.SignatureVersion == "1" {
		sum1 := sha1.Sum([]byte(text)) //nolint:gosec // as above
		hash, digest = crypto.SHA1, sum1[:]
	}
	signature, err := rsa.SignPKCS1v15(nil, t.key, hash, digest)
	if err != nil {
		return "", fmt.Errorf("sign message: %w", err)
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// confirmation returns the message that requests the confirmation of the subscription.
func (t *topic) confirmation(now time.Time) ([]byte, error) {
	return t.envelope("SubscriptionConfirmation",
		"You have chosen to subscribe to the topic "+t.TopicARN+". To confirm the subscription, visit the SubscribeURL included in this message.",
		now, map[string]string{
			"Token":        t.token,
			"SubscribeURL": t.BaseURL + confirmPath + "?Action=ConfirmSubscription&TopicArn=" + t.TopicARN + "&Token=" + t.token,
		})
}

// snsEndpoints respond like SNS's own hosts.
type snsEndpoints struct{ server *Server }

func (e snsEndpoints) addRoutes(m *http.ServeMux) {
	m.HandleFunc("GET "+certificatePath, e.showCertificate)
	m.HandleFunc("GET "+confirmPath, e.confirmSubscription)
}

func (e snsEndpoints) showCertificate(w http.ResponseWriter, r *http.Request) {
	p := e.server.currentPublisher()
	if p == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, _ = io.Copy(w, bytes.NewReader(p.topic.pem))
}

func (e snsEndpoints) confirmSubscription(w http.ResponseWriter, r *http.Request) {
	p := e.server.currentPublisher()
	q := r.URL.Query()
	if p == nil || q.Get("Action") != "ConfirmSubscription" || q.Get("Token") != p.topic.token || q.Get("TopicArn") != p.topic.TopicARN {
		http.Error(w, "InvalidParameter: Invalid token", http.StatusBadRequest)
		return
	}
	p.confirm()
	w.Header().Set("Content-Type", "text/xml")
	_, _ = io.WriteString(w, "<ConfirmSubscriptionResponse><ConfirmSubscriptionResult><SubscriptionArn>"+p.topic.TopicARN+":sim</SubscriptionArn></ConfirmSubscriptionResult></ConfirmSubscriptionResponse>")
}
