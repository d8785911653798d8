package httpapi

import (
	"fmt"
	"runtime"

	"email-gateway/api/internal/access"
	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/api/internal/httpapi/taxid"
	library "email-gateway/api/internal/templates"
	"email-gateway/shared/rules"
)

// shared is what handlers of several families use.
type shared struct {
	store       fairStore
	files       fairFiles
	templates   fairTemplates
	limiter     *access.Limiter
	rules       *rules.Rules
	sendAt      *compose.SendAtReader
	html        *compose.Checker
	library     *library.Library
	contents    *attachment.Library
	attachments *compose.Files
	commits     *accept.Committer
	taxIDs      taxid.Protector
}

func newShared(p Params, b bodies) (*shared, error) {
	fair := newFairStore(p.Store, slots.New())
	s := &shared{
		store: fair, files: fairFiles{FileStore: p.Files, fair: fair.Slots}, templates: fairTemplates{TemplateStore: p.Templates, fair: fair.Slots},
		limiter: access.NewLimiter(), html: compose.NewChecker(runtime.GOMAXPROCS(0)), commits: accept.New(fair),
		taxIDs: taxid.Protector{Ring: p.Ring, HashKey: p.HashKey},
	}
	var err error
	if s.rules, err = newRules(); err != nil {
		return nil, fmt.Errorf("prepare rules: %w", err)
	}
	if s.sendAt, err = compose.NewSendAtReader(s.rules); err != nil {
		return nil, err
	}
	s.library = s.html.NewLibrary(s.templates)
	s.contents = &attachment.Library{Log: p.Log, Bucket: p.Bucket, Files: fileRows{s.files, p.Store}, Ring: p.Ring, Slots: compose.NewFileSlots()}
	s.attachments = compose.NewFiles(s.files, s.contents, b.attachments)
	return s, nil
}
