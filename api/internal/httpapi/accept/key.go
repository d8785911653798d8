package accept

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/store/idempotency"
)

const (
	// maxIdempotencyKey is the maximum length of an Idempotency-Key.
	maxIdempotencyKey = 255
	// keepAnswers is how long a request may be repeated: over a long weekend.
	keepAnswers = 72 * time.Hour
)

// Key is a request's Idempotency-Key with the hash of its body. nil means that the
// client sent none.
type Key struct {
	Route string
	Key   string
	Sum   []byte // SHA-256 of the body; nil until the body of a mailing has been read
}

// KeyOf reads the key and hashes the body: as written if it has no canonical form. The body may contain
// a CPF, so the hash is keyed with hashKey if there is one.
func KeyOf(h http.Header, route string, d strictjson.Document, hashKey []byte) (*Key, error) {
	key, err := KeyWithoutSum(h, route)
	if err != nil || key == nil {
		return nil, err
	}
	sum, err := d.SHA256()
	if err != nil {
		sum = d.SHA256AsWritten()
	}
	key.Sum = Keyed(sum[:], hashKey)
	return key, nil
}

// KeyWithoutSum reads only the key. route separates the keys of different operations.
func KeyWithoutSum(h http.Header, route string) (*Key, error) {
	values, sent := h["Idempotency-Key"]
	if !sent {
		return nil, nil
	}
	key := values[0]
	printable := !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
	if len(values) > 1 || len(key) < 1 || len(key) > maxIdempotencyKey || !printable {
		return nil, badIdempotencyKey
	}
	return &Key{Route: route, Key: key}, nil
}

// RefuseKey refuses the key of a request whose response is not stored, and which creates something new when it is repeated: its
// client relies on the key. Other requests ignore a key, because some clients send one with each POST.
func RefuseKey(c *gin.Context) error {
	if _, sent := c.Request.Header["Idempotency-Key"]; sent {
		return keyNotSupported
	}
	return nil
}

// Keyed returns the hash, or HMAC(key, hash) if there is a key: a CPF in a short text could be
// recovered from a plain hash.
func Keyed(sum, hashKey []byte) []byte {
	if len(hashKey) == 0 {
		return sum
	}
	mac := hmac.New(sha256.New, hashKey)
	mac.Write(sum)
	return mac.Sum(nil)
}

// Record returns the key as stored with the row that it protects.
func (k *Key) Record(answer []byte) *idempotency.Key {
	if k == nil {
		return nil
	}
	return &idempotency.Key{
		Route: k.Route, Key: k.Key, BodySHA256: k.Sum, Status: http.StatusAccepted, Answer: answer, Keep: keepAnswers,
	}
}
