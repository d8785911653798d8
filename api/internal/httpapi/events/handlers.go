// Package events serves the feed of events, and lets requests wait for the next one.
package events

import (
	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/shared/rules"
)

// Handlers handle the requests for events.
type Handlers struct {
	feed  Feed
	polls *Polls
	slots slots.Slots
	rules *rules.Rules
	// stillValid checks the key of a request that waited again.
	stillValid func(*gin.Context) error
}

// New returns Handlers. If polls is nil, no request waits for events.
func New(feed Feed, polls *Polls, s slots.Slots, checks *rules.Rules, stillValid func(*gin.Context) error) *Handlers {
	return &Handlers{feed: feed, polls: polls, slots: s, rules: checks, stillValid: stillValid}
}
