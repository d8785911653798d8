// Package templates stores, publishes, shows and previews the templates of companies.
package templates

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/strictjson"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/rules"
	templatestore "email-gateway/shared/store/template"
)

// Path is the path of templates.
const Path = "/v1/templates"

// Store is the part of *templatestore.Store that requests about templates use.
type Store interface {
	Find(ctx context.Context, company uuid.UUID, id templatestore.ID, version int) (templatestore.Version, error)
	Create(ctx context.Context, company uuid.UUID, actor string, v templatestore.Version, publish bool) (created templatestore.Version, made bool, err error)
	Publish(ctx context.Context, company uuid.UUID, actor string, id templatestore.ID, version int) (templatestore.Version, error)
	Delete(ctx context.Context, company uuid.UUID, actor string, id templatestore.ID) error
	List(ctx context.Context, company uuid.UUID, after templatestore.ID, name string, limit int) ([]templatestore.Summary, error)
	History(ctx context.Context, company uuid.UUID, name string, limit int) ([]templatestore.Event, error)
}

// Handlers handle the requests about templates.
type Handlers struct {
	store           Store
	library         *templates.Library
	html            *compose.Checker
	rules           *rules.Rules
	creates         *strictjson.Reader[createRequest]
	publishRequests *strictjson.Reader[publishRequest]
	previews        *strictjson.Reader[previewRequest]
}

// New returns Handlers.
func New(s Store, library *templates.Library, html *compose.Checker, checks *rules.Rules) (*Handlers, error) {
	creates, err := strictjson.NewReader[createRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare templates: %w", err)
	}
	publishRequests, err := strictjson.NewReader[publishRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare publications: %w", err)
	}
	previews, err := strictjson.NewReader[previewRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare previews: %w", err)
	}
	return &Handlers{store: s, library: library, html: html, rules: checks, creates: creates, publishRequests: publishRequests, previews: previews}, nil
}
