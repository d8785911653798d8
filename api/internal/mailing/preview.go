package mailing

import (
	"strings"

	"email-gateway/shared/plaintext"
)

// maxPreview is how many rows a dry run shows as rendered emails.
const maxPreview = 3

// Preview is the email of one row. It contains personal data of the file: it is only for the
// response to the upload and is not stored.
type Preview struct {
	Line    int    `json:"line"`
	Email   string `json:"email"`
	Subject string `json:"subject"`
	HTML    string `json:"html,omitempty"`
	Text    string `json:"text,omitempty"`
}

// FirstEmails renders the first valid rows of at most 10,000 lines, with a placeholder token and unsubscribe link, so that
// the result depends only on the file. autoText says that the worker makes a missing text part. The error is that of Lines.
func FirstEmails(r *Reading, j *Validator, link string, autoText bool) ([]Preview, error) {
	emails := []Preview{}
	seen := map[string]bool{}
	for line, err := range firstLines(r, j) {
		if err != nil {
			return nil, err
		}
		if e := line.Entry; e != nil && e.InvalidReason == "" && !seen[strings.ToLower(e.Email)] {
			seen[strings.ToLower(e.Email)] = true
			rendered, err := j.renderAgain(tokenLike, link)
			if err != nil {
				return nil, err
			}
			if rendered.Text == "" && autoText {
				rendered.Text = plaintext.FromHTML(rendered.HTML)
			}
			emails = append(emails, Preview{Line: e.Line, Email: e.Email, Subject: rendered.Subject, HTML: rendered.HTML, Text: rendered.Text})
		}
		if len(emails) == maxPreview {
			break
		}
	}
	return emails, nil
}
