package httpapi

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/store"
)

const (
	// maxIdempotencyKey is the maximum length of an Idempotency-Key.
	maxIdempotencyKey = 255
	// keepAnswers is how long a request may be repeated: over a long weekend.
	keepAnswers = 72 * time.Hour
)

// onceGuard is a request's Idempotency-Key with the hash of its body. nil means that the
// client sent none.
type onceGuard struct {
	route string
	key   string
	sum   []byte // SHA-256 of the body; nil = the body has no canonical form and cannot be accepted
}

// guardOf reads the key and hashes the body, which may contain a CPF: the hash is keyed with
// hashKey if there is one.
func guardOf(h http.Header, route string, d strictjson.Document, hashKey []byte) (*onceGuard, error) {
	guard, err := keyOf(h, route)
	if err != nil || guard == nil {
		return nil, err
	}
	if sum, err := d.SHA256(); err == nil {
		guard.sum = keyed(sum[:], hashKey)
	}
	return guard, nil
}

// keyOf reads only the key. route separates the keys of different operations.
func keyOf(h http.Header, route string) (*onceGuard, error) {
	values, sent := h["Idempotency-Key"]
	if !sent {
		return nil, nil
	}
	key := values[0]
	printable := !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
	if len(values) > 1 || len(key) < 1 || len(key) > maxIdempotencyKey || !printable {
		return nil, badIdempotencyKey
	}
	return &onceGuard{route: route, key: key}, nil
}

// keyed returns the hash, or HMAC(key, hash) if there is a key: a CPF in a short text could be
// recovered from a plain hash.
func keyed(sum, hashKey []byte) []byte {
	if len(hashKey) == 0 {
		return sum
	}
	mac := hmac.New(sha256.New, hashKey)
	mac.Write(sum)
	return mac.Sum(nil)
}

// record returns the key as stored with the row that it protects.
func (g *onceGuard) record(answer []byte) *store.IdempotencyKey {
	if g == nil {
		return nil
	}
	return &store.IdempotencyKey{
		Route: g.route, Key: g.key, BodySHA256: g.sum, Status: http.StatusAccepted, Answer: answer, Keep: keepAnswers,
	}
}

// replayInstead returns the stored response of a request that is rejected now (refusal) but was
// accepted the first time: since then the sender's domain may have been removed, the HTML
// rules tightened, or a quota used up. Only rejected requests cause the query.
func (a *API) replayInstead(c *gin.Context, g *onceGuard, refusal error) error {
	if g == nil || g.sum == nil {
		return refusal
	}
	if p := problemOf(refusal); p.status != http.StatusUnprocessableEntity && p.code != codeQuotaExceeded {
		return refusal
	}
	stored, err := a.store.FindAnswer(c.Request.Context(), visitOf(c).caller.CompanyID, g.route, g.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return refusal
	case err != nil:
		return err
	}
	return a.replay(c, g, stored)
}

// replay returns a stored response. It must not return a 202 for a row that only the primary has.
func (a *API) replay(c *gin.Context, g *onceGuard, stored store.StoredAnswer) error {
	if !bytes.Equal(stored.BodySHA256, g.sum) {
		return keyReused
	}
	if err := a.store.Confirm(c.Request.Context()); err != nil {
		return err
	}
	visitOf(c).note(stored.Answer)
	c.Header("Idempotent-Replayed", "true")
	a.answerAccepted(c, stored.Status, stored.Answer)
	return nil
}

// note reads from a stored response which object it is about and where to look it up.
func (v *requestState) note(answer []byte) {
	var made struct {
		OutboxID    string `json:"outboxId"`
		RecipientID string `json:"id"`
		MailingID   string `json:"mailingId"`
	}
	if json.Unmarshal(answer, &made) != nil {
		return
	}
	switch {
	case made.OutboxID != "":
		v.outboxID, v.location = made.OutboxID, emailPath+made.OutboxID
	case made.RecipientID != "":
		v.location = recipientPath + made.RecipientID
	case made.MailingID != "":
		v.mailingID, v.location = made.MailingID, mailingPath+made.MailingID
	}
}
