package sns_test

import (
	"crypto/rand"
	"crypto/rsa"
	"testing"

	"email-gateway/api/internal/sns"
)

// For any input: no panic, no message signed with another key than Amazon's is accepted, and nothing is fetched
// that the rules do not allow. The seeds are signed with another key.
func FuzzVerify(f *testing.F) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		f.Fatal(err)
	}
	stranger := &amazon{key: key}
	subject := "s"
	withSubject := notification()
	withSubject.Subject = &subject
	for _, m := range []sns.Message{notification(), confirmation(), withSubject} {
		f.Add(body(f, stranger.sign(f, m), nil))
	}
	a := newAmazon(f, nil)
	v := a.verifier(nil).Unpaced()
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := sns.Parse(text)
		if err != nil {
			return
		}
		if v.Verify(t.Context(), m) == nil {
			t.Fatalf("message %q passed the verification", text)
		}
		if sns.Canonical(m) == "" {
			t.Fatal("the signed text is empty")
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, requested := range a.requested {
			if sns.CertificateURL(requested, m.TopicARN) != nil {
				t.Fatalf("fetched the forbidden URL %s", requested)
			}
		}
		a.requested = nil
	})
}
