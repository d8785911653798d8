package maintenance

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

const (
	// foldInterval bounds the number of rows that a request close to a quota reads: those of a few seconds.
	foldInterval = 2 * time.Second
	// foldBatch is how many companies one statement folds.
	foldBatch = 1000
	// foldAllEvery is how many rounds it takes, half a minute, until one reads all deltas.
	foldAllEvery = 15
)

// FoldStore has the database operation of the folder.
type FoldStore interface {
	FoldQuotas(ctx context.Context, limit int, all bool) (int, error)
}

// QuotaFolderParams configure a QuotaFolder.
type QuotaFolderParams struct {
	Log   *slog.Logger
	Store FoldStore
}

// QuotaFolder adds the counts of single commits to the totals of their company. Readers add up both, so the use of a quota is
// exact at any time.
type QuotaFolder struct {
	*service.Loop
}

// NewQuotaFolder makes a folder that is not running yet.
func NewQuotaFolder(p QuotaFolderParams) *QuotaFolder {
	rounds := 0
	return &QuotaFolder{service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: foldInterval,
		RunOnce: func(ctx context.Context) (more bool, err error) {
			n, err := p.Store.FoldQuotas(ctx, foldBatch, rounds%foldAllEvery == 0)
			if n < foldBatch && err == nil {
				rounds++
			}
			return n == foldBatch, err
		},
	})}
}
