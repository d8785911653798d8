package store

import (
	"context"

	"email-gateway/shared/store/file"
)

// AddFile is file.Store.Add.
func (s *Store) AddFile(ctx context.Context, f file.File) (file.File, error) {
	return s.files.Add(ctx, f)
}

// owned are the attachments of emails, for file.Hold and file.Link.
func owned(emails []NewEmail) []file.Owned {
	var all []file.Owned
	for i := range emails {
		if e := &emails[i]; len(e.Attachments) > 0 {
			all = append(all, file.Owned{Owner: e.ID, Attachments: e.Attachments})
		}
	}
	return all
}
