package checker

import (
	"slices"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/sessim"
)

// Contents are emails that SES received as they had been submitted.
type Contents struct {
	Emails      int `json:"emails"`      // with the subject and html
	Templates   int `json:"templates"`   // of these, made from a stored template
	Attached    int `json:"attached"`    // with attachments, those of mailings included
	Attachments int `json:"attachments"` // of these emails
	Mailings    int `json:"mailings"`    // emails of mailings with attachments
	Files       int `json:"files"`       // stored by tenants and attached by id
}

// checkContents compares each request that SES accepted with what was submitted: tenant, sender, cc, subject,
// attachments, and the html of single emails and those of batches.
func (c *Checker) checkContents(requests []sessim.Entry) {
	mailings := make(map[string]load.Mailing, len(c.records.Mailings))
	for _, m := range c.records.Mailings {
		mailings[m.ID.String()] = m
	}
	c.Counts.Contents.Files = len(c.records.Files)
	seen := make(map[string]bool, len(c.accepted))
	for _, e := range requests {
		r := c.emails[e.OutboxID]
		if !e.Accepted || r == nil {
			continue
		}
		want, known := c.records.Contents[r.to]
		if r.mailing != "" {
			m, uploaded := mailings[r.mailing]
			want, known = load.Content{Tenant: m.Tenant, Subject: m.People[r.to], Attachments: m.Attachments}, uploaded
		}
		if known && c.checkContent(r, e, want) && !seen[r.id] {
			seen[r.id] = true
			c.Counts.Contents.add(r, want)
		}
	}
}

// checkContent reports whether SES received what was submitted.
func (c *Checker) checkContent(r *row, got sessim.Entry, want load.Content) bool {
	attachments := make([]load.Attachment, len(got.Attachments))
	for i, a := range got.Attachments {
		attachments[i] = load.Attachment{Name: a.FileName, Type: a.ContentType, SHA256: a.SHA256}
	}
	company := tenants()[want.Tenant]
	switch {
	case r.company != company || got.CompanyID != r.companyID || got.From != cluster.Sender(company):
		c.Findings.Add(Promise, "email %s of %s belongs to %s (%s), SES received it from %s (%s)", r.id, company, r.company, r.companyID, got.From, got.CompanyID)
	case !slices.Equal(got.CC, want.CC) || len(got.BCC) > 0:
		c.Findings.Add(Altered, "email %s has the cc %q, SES received the cc %q and bcc %q", r.id, want.CC, got.CC, got.BCC)
	case !slices.Equal(attachments, want.Attachments):
		c.Findings.Add(Altered, "email %s has the attachments %+v, SES received %+v", r.id, want.Attachments, attachments)
	case got.Subject != want.Subject:
		c.Findings.Add(Altered, "email %s has the subject %q, SES received %q", r.id, want.Subject, got.Subject)
	case r.mailing == "" && got.HTMLSHA256 != want.HTML:
		c.Findings.Add(Altered, "email %s (template: %v) has html with the digest %s, SES received %s", r.id, want.Template, want.HTML, got.HTMLSHA256)
	default:
		return true
	}
	return false
}

func (n *Contents) add(r *row, content load.Content) {
	if r.mailing == "" {
		n.Emails++
	}
	if content.Template {
		n.Templates++
	}
	if len(content.Attachments) == 0 {
		return
	}
	n.Attached++
	n.Attachments += len(content.Attachments)
	if r.mailing != "" {
		n.Mailings++
	}
}
