package maintenance

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

const (
	// foldInterval keeps the rows that a request close to a quota reads to those of some
	// seconds.
	foldInterval = 2 * time.Second
	// foldBatch is how many companies are folded by one statement.
	foldBatch = 1000
)

// FoldStore is what the folder asks of the database.
type FoldStore interface {
	FoldQuotas(ctx context.Context, limit int) (int, error)
}

// QuotaFolderParams make a QuotaFolder.
type QuotaFolderParams struct {
	Log   *slog.Logger
	Store FoldStore
}

// QuotaFolder adds what each commit has counted to the totals of its company. Until then
// both are summed up, so that the use of a quota is right at any time.
type QuotaFolder struct {
	*service.Loop
}

// NewQuotaFolder makes a folder that is not running yet.
func NewQuotaFolder(p QuotaFolderParams) *QuotaFolder {
	return &QuotaFolder{service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: foldInterval,
		RunOnce: func(ctx context.Context) (more bool, err error) {
			n, err := p.Store.FoldQuotas(ctx, foldBatch)
			return n == foldBatch, err
		},
	})}
}
