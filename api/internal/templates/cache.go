package templates

import (
	"github.com/google/uuid"

	"email-gateway/shared/template"
)

// cacheLimits limit the memory of parsed versions.
var cacheLimits = template.CacheLimits{All: 32 << 20, PerCompany: 8 << 20}

// version identifies a version. Its content never changes, so a cached one is never stale.
type version struct {
	company      uuid.UUID
	name, locale string
	number       int
}

type cache = template.Cache[version, *template.Template]

func newCache() *cache { return template.NewCache[version, *template.Template](cacheLimits) }
