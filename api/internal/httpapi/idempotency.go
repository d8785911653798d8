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
	// maxIdempotencyKey is the longest key a client may choose.
	maxIdempotencyKey = 255
	// keepAnswers is how long a request may be repeated: over a long weekend.
	keepAnswers = 72 * time.Hour
)

// onceGuard is a request's Idempotency-Key with what it stands for. nil means that
// the client sent none.
type onceGuard struct {
	route string
	key   string
	sum   []byte // of the body; nil = no body that could be accepted has this form
}

// guardOf reads the key and hashes the body, which may hold a CPF: hashKey, when there
// is one, keys the hash.
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

// keyOf reads the key alone. route separates the keys of different operations.
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

// keyed is the hash, or HMAC(key, hash) where there is a key: from a plain hash of a
// short text, a CPF in it could be found again.
func keyed(sum, hashKey []byte) []byte {
	if len(hashKey) == 0 {
		return sum
	}
	mac := hmac.New(sha256.New, hashKey)
	mac.Write(sum)
	return mac.Sum(nil)
}

// record is the key as it is stored with the row it protects.
func (g *onceGuard) record(answer []byte) *store.IdempotencyKey {
	if g == nil {
		return nil
	}
	return &store.IdempotencyKey{
		Route: g.route, Key: g.key, BodySHA256: g.sum, Status: http.StatusAccepted, Answer: answer, Keep: keepAnswers,
	}
}

// replayInstead answers a request that is refused today (refusal) and was accepted
// the first time: the sender's domain may be gone since, the html rules stricter, a quota
// of the company used up.
// Only a refused request asks, so an accepted one costs no query.
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

// replay gives a stored answer once more. A 202 must not be given for a row that only the primary has.
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

// note reads back from a stored answer what it is about, and where that can be looked
// up.
func (v *visit) note(answer []byte) {
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
