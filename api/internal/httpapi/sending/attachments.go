package sending

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/outbox"
)

// storeTries is how often contents are stored for one request. An erasure may delete a file between its storing and the
// commit that attaches it.
const storeTries = 3

// acceptFiles stores the contents that are not stored yet, and then accepts the email.
func (h *Handlers) acceptFiles(ctx context.Context, mail *outbox.NewEmail, pending []*attachment.Content, accept func() error) error {
	for try := 1; ; try++ {
		if err := h.files.StorePending(ctx, mail.CompanyID, mail.Attachments, pending); err != nil {
			return err
		}
		err := accept()
		gone, lost := errors.AsType[*file.GoneError](err)
		if !lost {
			return err
		}
		var faults rules.Faults
		for i, one := range mail.Attachments {
			if pending[i] == nil && slices.Contains(gone.IDs, one.FileID) {
				faults.Add(fmt.Sprintf("attachments[%d].fileId", i), compose.CodeFileNotFound, compose.FileDeleted)
			}
		}
		switch {
		case len(faults) > 0:
			return problem.Invalid(faults)
		case try == storeTries:
			return fmt.Errorf("%w: %w", problem.Busy, err)
		}
	}
}
