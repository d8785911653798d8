// Package usage shows a company its usage of a month and its quotas.
package usage

import (
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/shared/rules"
)

// Handlers handle the requests about usage.
type Handlers struct {
	store Store
	slots slots.Slots
	rules *rules.Rules
}

// New returns Handlers.
func New(s Store, limit slots.Slots, checks *rules.Rules) *Handlers {
	return &Handlers{store: s, slots: limit, rules: checks}
}
