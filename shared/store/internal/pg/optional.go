package pg

import "github.com/google/uuid"

// OptionalUUID is a parameter that is NULL for uuid.Nil.
func OptionalUUID(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}
