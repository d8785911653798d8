package mailing

import "strings"

// MaxPreview is how many rows a dry run shows as they would be sent.
const MaxPreview = 3

// Preview is the email of one row. It holds what the row says: it is for the answer to the
// upload and is not stored.
type Preview struct {
	Line    int    `json:"line"`
	Email   string `json:"email"`
	Subject string `json:"subject"`
	HTML    string `json:"html"`
	Text    string `json:"text,omitempty"`
}

// previewLines is how many lines are looked at for them.
const previewLines = 10_000

// FirstEmails renders the first rows that would be sent, with a placeholder token and
// unsubscribe link. The same file makes the same emails. The error is what Lines yields.
func FirstEmails(r *Reading, j *Judge, link string) ([]Preview, error) {
	emails := []Preview{}
	seen := map[string]bool{}
	n := 0
	for line, err := range Lines(r, j) {
		if err != nil {
			return nil, err
		}
		if e := line.Entry; e != nil && e.InvalidReason == "" && !seen[strings.ToLower(e.Email)] {
			seen[strings.ToLower(e.Email)] = true
			letter, err := j.renderAgain(tokenLike, link)
			if err != nil {
				return nil, err
			}
			emails = append(emails, Preview{Line: e.Line, Email: e.Email, Subject: letter.Subject, HTML: letter.HTML, Text: letter.Text})
		}
		if n++; n == previewLines || len(emails) == MaxPreview {
			break
		}
	}
	return emails, nil
}
