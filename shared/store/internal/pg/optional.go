package pg

import (
	"time"

	"github.com/google/uuid"
)

// OptionalUUID returns a parameter that is NULL for uuid.Nil.
func OptionalUUID(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// OptionalTime returns a parameter that is NULL for the zero time.
func OptionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
