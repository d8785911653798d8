package httpapi

import (
	"errors"

	"github.com/google/uuid"

	"email-gateway/api/internal/mailbox"
)

// asciiAddress is a bare address as it is stored and sent.
func asciiAddress(address string) (string, error) { return mailbox.ASCII(address) }

// parseID reads a UUID in its one usual form; uuid.Parse knows others.
func parseID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, errors.New("must be a UUID")
	}
	return id, nil
}

func checkID(text string) error {
	_, err := parseID(text)
	return err
}
