package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
)

// Upload is a CSV with its form fields.
type Upload struct {
	Sheet  string            // the file
	Rows   int               // number of rows, all valid
	Fields map[string]string // of the form
}

// Send uploads the CSV as a mailing, with its own Idempotency-Key, and returns the mailing's id. It
// returns after the api's response, which follows the commit.
func (u Upload) Send(ctx context.Context, addr, key string) (mailing uuid.UUID, err error) {
	file, err := os.Open(u.Sheet)
	if err != nil {
		return uuid.Nil, fmt.Errorf("upload: %w", err)
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return uuid.Nil, fmt.Errorf("upload: %w", err)
	}
	head, tail, contentType, err := form(u.Fields, filepath.Base(u.Sheet))
	if err != nil {
		return uuid.Nil, err
	}
	body := io.MultiReader(bytes.NewReader(head), file, bytes.NewReader(tail))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/mailings", body)
	if err != nil {
		return uuid.Nil, fmt.Errorf("upload: %w", err)
	}
	request.ContentLength = int64(len(head)) + stat.Size() + int64(len(tail))
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Idempotency-Key", fmt.Sprintf("planilha-%d", time.Now().UnixNano()))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return uuid.Nil, fmt.Errorf("upload: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return uuid.Nil, fmt.Errorf("upload: read response: %w", err)
	}
	var accepted struct {
		MailingID uuid.UUID
		Accepted  int
	}
	if err := json.Unmarshal(text, &accepted); err != nil || response.StatusCode/100 != 2 || accepted.Accepted != u.Rows {
		return uuid.Nil, fmt.Errorf("upload: the response is %d %.300s, want %d rows accepted", response.StatusCode, text, u.Rows)
	}
	return accepted.MailingID, nil
}

// form returns the parts of a multipart form before and after the content of the file, which is its
// last part.
func form(fields map[string]string, filename string) (head, tail []byte, contentType string, err error) {
	var text bytes.Buffer
	writer := multipart.NewWriter(&text)
	for name, value := range fields {
		if err := writer.WriteField(name, value); err != nil {
			return nil, nil, "", fmt.Errorf("write form: %w", err)
		}
	}
	if _, err := writer.CreateFormFile("file", filename); err != nil {
		return nil, nil, "", fmt.Errorf("write form: %w", err)
	}
	cut := text.Len()
	if err := writer.Close(); err != nil {
		return nil, nil, "", fmt.Errorf("write form: %w", err)
	}
	return text.Bytes()[:cut], text.Bytes()[cut:], writer.FormDataContentType(), nil
}
