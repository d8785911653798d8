// Package events serves the feed of events, and lets requests wait for the next one.
package events

import (
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/shared/rules"
)

// Handlers handle the requests for events.
type Handlers struct {
	feed  Feed
	polls *Polls
	slots slots.Slots
	rules *rules.Rules
}

// New creates Handlers. If polls is nil, no request waits for events.
func New(feed Feed, polls *Polls, s slots.Slots, checks *rules.Rules) *Handlers {
	return &Handlers{feed: feed, polls: polls, slots: s, rules: checks}
}
