package query

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
)

// A cursor is a JSON object in base64: the last row of a page, and the hash of the list. In another list, or with other
// filters, the next page would begin anywhere, without an error.

// idCursor is the cursor of a list that is sorted by id.
type idCursor struct {
	ID uuid.UUID `json:"id"`
}

// list returns the hash of the list: of its path, without the prefix that clients may leave out, and of all parameters
// but those of the page.
func (q *Query) list() string {
	filters := maps.Clone(q.values)
	maps.DeleteFunc(filters, func(name string, values []string) bool {
		return name == "cursor" || name == "limit" || !slices.ContainsFunc(values, func(v string) bool { return !email.IsBlank(v) })
	})
	sum := sha256.Sum256([]byte(strings.TrimPrefix(q.path, "/v1") + "?" + filters.Encode()))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// CursorTo returns the cursor of the page that begins after id.
func (q *Query) CursorTo(id uuid.UUID) (string, error) { return q.EncodeCursor(idCursor{id}) }

// EncodeCursor returns the cursor of a list that is not sorted by id. last is a struct with fields; CursorInto reads it.
func (q *Query) EncodeCursor(last any) (string, error) {
	text, err := json.Marshal(last)
	if err != nil {
		return "", fmt.Errorf("encode cursor: %w", err)
	}
	text = append(text[:len(text)-1], `,"list":"`+q.list()+`"}`...)
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// Cursor reads a cursor made by CursorTo.
func (q *Query) Cursor(name string) uuid.UUID {
	value, given := q.Get(name)
	if !given {
		return uuid.Nil
	}
	var last idCursor
	raw, err := base64.RawURLEncoding.DecodeString(value)
	if err == nil && len(raw) == len(last.ID) { // made by the previous release
		return uuid.UUID(raw)
	}
	if err != nil || !q.decode(raw, &last) {
		q.RejectCursor(name)
	}
	return last.ID
}

// CursorInto reads a cursor made by EncodeCursor into last, a pointer, and reports whether it did.
func (q *Query) CursorInto(name string, last any) bool {
	value, given := q.Get(name)
	if !given {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || !q.decode(raw, last) {
		q.RejectCursor(name)
		return false
	}
	return true
}

// decode reads a cursor of this list. It rejects texts that Postgres cannot store: the client can change a cursor. Those of the
// previous release have no hash.
func (q *Query) decode(raw []byte, last any) bool {
	document, err := strictjson.Parse(raw)
	var of struct {
		List *string `json:"list"`
	}
	if err != nil || document.HasBadCharacter() || json.Unmarshal(raw, last) != nil || json.Unmarshal(raw, &of) != nil {
		return false
	}
	return of.List == nil || *of.List == q.list()
}

// RejectCursor reports a cursor that the gateway did not make for this list.
func (q *Query) RejectCursor(name string) {
	q.Faults.Add(name, "INVALID_CURSOR", "must be the nextCursor of a page of this list with the same filters")
}
