package main

import (
	"time"

	"email-gateway/shared/store/file"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/webhook"

	"email-gateway/worker/internal/maintenance"
)

// cleaners returns the configuration of the cleaners.
func (p program) cleaners(actions *maintenance.Actions) maintenance.CleanersParams {
	c := p.config
	params := maintenance.CleanersParams{
		Log: p.log, Store: p.db, Retention: retention.New(p.db.DB()), Feed: p.feed, Webhooks: webhook.New(p.db.DB()), Stored: file.New(p.db.DB()), Files: p.storage, Archive: p.publisher, Actions: actions,
		Ages: maintenance.Ages{
			Outbox: time.Duration(c.Outbox), Bodies: time.Duration(c.KeepBodies()), Files: time.Duration(c.Files), Entries: time.Duration(c.Entries),
			Logs: time.Duration(c.Logs), Events: time.Duration(c.KeepEvents()), Hashes: time.Duration(c.Hashes),
			Unstarted:         time.Duration(c.Unstarted),
			DeletedRecipients: time.Duration(c.DeletedRecipients),
		},
	}
	return params
}
