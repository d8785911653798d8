package load

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"
)

const (
	// attachedSerials is the first serial of the emails with attachments. Their CPFs are not those of
	// other emails: see TaxID.
	attachedSerials = 3_250_000
	// attachedPause is the pause between two of them.
	attachedPause = 300 * time.Millisecond
	// maxAttached limits those without a response: see maxPersons.
	maxAttached = 16
	// sharedBy is the number of consecutive emails that attach one stored file.
	sharedBy = 20
	// mailingFiles is the number of the first file that mailings attach.
	mailingFiles = 1_000_000
)

// file is a file that emails attach.
type file struct {
	Attachment
	content []byte
}

// newFile returns the n-th file, which depends only on the seed: up to 64 KiB, one in twenty up to 1 MiB.
func (l *Load) newFile(n int) file {
	random := rand.New(rand.NewPCG(l.params.Seed, uint64(2_000_000_000+n)))
	size := 1 + random.IntN(64<<10)
	if random.IntN(20) == 0 {
		size *= 16
	}
	content := []byte("%PDF-1.7\n")
	for range size / 8 {
		word := random.Uint64()
		for range 8 {
			content, word = append(content, byte(word)), word>>8
		}
	}
	return file{Attachment{fmt.Sprintf("Fatura março %d.pdf", n), "application/pdf", digest(content)}, content}
}

// sendAttached sends emails with attachments, in base64, by the id of a file that several emails
// share, or both. Each is sent in a goroutine of its own, so that the others continue while the
// storage is down.
func (l *Load) sendAttached(ctx, offering context.Context) {
	repeat(offering, attachedPause, maxAttached, func(n int) {
		if l.awaitBacklog(offering) != nil {
			return
		}
		serial := attachedSerials + n
		next := l.newEmail(rand.New(rand.NewPCG(l.params.Seed, uint64(serial))), serial)
		if n%3 != 0 {
			next.attachStored(l.newFile(n / sharedBy))
		}
		if n%3 != 1 {
			next.attachContent(l.newFile(serial))
		}
		l.send(ctx, next)
	})
}

// attachContent attaches a file in base64.
func (e *email) attachContent(f file) {
	e.attach(f, map[string]any{"content": base64.StdEncoding.EncodeToString(f.content)})
}

// attachStored attaches a file by its id, which it gets when it is stored, before the email is submitted.
func (e *email) attachStored(f file) {
	e.attach(f, map[string]any{})
	e.files = append(e.files, f)
}

func (e *email) attach(f file, attachment map[string]any) {
	attachment["filename"], attachment["contentType"] = f.Name, f.Type
	list, _ := e.request["attachments"].([]map[string]any)
	e.request["attachments"] = append(list, attachment)
	e.content.Attachments = append(e.content.Attachments, f.Attachment)
}

// storeFiles stores the files that the email attaches by id, and reports whether all are stored.
func (l *Load) storeFiles(ctx context.Context, e email) bool {
	list, _ := e.request["attachments"].([]map[string]any)
	for _, f := range e.files {
		id, ok := l.storeFile(ctx, e.key, f)
		if !ok {
			return false
		}
		for _, attachment := range list {
			if attachment["filename"] == f.Name {
				attachment["fileId"] = id
			}
		}
	}
	return true
}

// storeFile stores the file until there is a response, also if the tenant has stored it before: its id
// stays the same.
func (l *Load) storeFile(ctx context.Context, key string, f file) (id uuid.UUID, ok bool) {
	got, ok := l.retryUntil(ctx, request{
		method: http.MethodPost, path: "/v1/files", key: key, contentType: f.Type, body: f.content, timeout: uploadTimeout,
	}, f.Name, http.StatusCreated, http.StatusOK)
	if !ok {
		return uuid.Nil, false
	}
	stored, err := read[struct {
		ID     uuid.UUID
		SHA256 string
	}](got)
	if err != nil || stored.SHA256 != f.SHA256 {
		l.Ledger.addRefusal(fmt.Sprintf("%s: %.300q, want the digest %s", f.Name, got.body, f.SHA256))
		return uuid.Nil, false
	}
	if first := l.Ledger.addFile(key+f.SHA256, stored.ID); first != stored.ID {
		l.Ledger.addRefusal(fmt.Sprintf("%s was stored as %s and as %s", f.Name, first, stored.ID))
	}
	return stored.ID, true
}
