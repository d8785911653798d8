package sns_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"time"

	"email-gateway/api/internal/sns"
)

const (
	topic    = "arn:aws:sns:us-east-1:123456789012:ses-events"
	certPath = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0123abcd.pem"
)

// amazon signs messages and simulates the network that serves certificates.
type amazon struct {
	key *rsa.PrivateKey
	pem []byte

	mu        sync.Mutex
	requested []string
	answer    func(*http.Request) (*http.Response, error) // nil = the certificate
	waiting   chan struct{}                               // nil = answers at once
}

var signingKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func newAmazon(tb testing.TB, change func(*x509.Certificate)) *amazon {
	tb.Helper()
	key := signingKey()
	return &amazon{key: key, pem: certificateOf(tb, key, &key.PublicKey, change)}
}

func certificateOf(tb testing.TB, signer crypto.Signer, public any, change func(*x509.Certificate)) []byte {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sns.amazonaws.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, signer)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// RoundTrip counts and answers requests.
func (a *amazon) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.requested = append(a.requested, r.URL.String())
	answer, waiting := a.answer, a.waiting
	a.mu.Unlock()
	if waiting != nil {
		select {
		case <-waiting:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if answer != nil {
		return answer(r)
	}
	return reply(http.StatusOK, a.pem), nil
}

func (a *amazon) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requested
}

func reply(status int, body []byte) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))}
}

// verifier creates a Verifier for the topic on this network. change may be nil.
func (a *amazon) verifier(change func(*sns.Params)) *sns.Verifier {
	p := sns.Params{Topics: []string{"arn:aws:sns:us-east-1:123456789012:other", topic}}
	if change != nil {
		change(&p)
	}
	return sns.NewVerifier(p, a)
}

// notification is a valid notification before it is signed.
func notification() sns.Message {
	return sns.Message{
		Type: sns.Notification, MessageID: "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", TopicARN: topic, Message: `{"eventType":"Send"}`,
		Timestamp: time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), SignatureVersion: "2", SigningCertURL: certPath,
	}
}

func confirmation() sns.Message {
	m := notification()
	m.Type, m.Token, m.Message = sns.SubscriptionConfirmation, "2336412f37", "You have chosen to subscribe to the topic."
	m.SubscribeURL = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=" + topic + "&Token=2336412f37"
	return m
}

// sign signs the message.
func (a *amazon) sign(tb testing.TB, m sns.Message) sns.Message {
	tb.Helper()
	text, hash := []byte(sns.Canonical(m)), crypto.SHA256
	sum256, sum1 := sha256.Sum256(text), sha1.Sum(text)
	digest := sum256[:]
	if m.SignatureVersion == "1" {
		hash, digest = crypto.SHA1, sum1[:]
	}
	signature, err := rsa.SignPKCS1v15(nil, a.key, hash, digest)
	if err != nil {
		tb.Fatal(err)
	}
	m.Signature = base64.StdEncoding.EncodeToString(signature)
	return m
}

// body encodes the message. change may be nil.
func body(tb testing.TB, m sns.Message, change func(map[string]any)) []byte {
	tb.Helper()
	fields := map[string]any{
		"Type": m.Type, "MessageId": m.MessageID, "TopicArn": m.TopicARN, "Message": m.Message, "Timestamp": m.Timestamp,
		"SignatureVersion": m.SignatureVersion, "Signature": m.Signature, "SigningCertURL": m.SigningCertURL,
		"UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
	}
	if m.Subject != nil {
		fields["Subject"] = *m.Subject
	}
	if m.Token != "" {
		fields["Token"], fields["SubscribeURL"] = m.Token, m.SubscribeURL
	}
	if change != nil {
		change(fields)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}
