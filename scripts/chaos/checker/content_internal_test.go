package checker

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/sessim"
)

// Each difference between what was submitted and what SES received is a finding.
func TestCheckContents(t *testing.T) {
	t.Parallel()
	mailing := uuid.MustParse("0199d0a8-5f6e-7c3a-9b1e-2f4a6c8e0d12")
	files := []load.Attachment{{Name: "a.pdf", Type: "application/pdf", SHA256: "1"}}
	arrived := sessim.Attachment{FileName: "a.pdf", ContentType: "application/pdf", SHA256: "1"}
	records := load.Records{
		Contents: map[string]load.Content{"a@x": {Subject: "s", HTML: "h", CC: []string{"c@x"}, Template: true, Attachments: files}},
		Mailings: []load.Mailing{{ID: mailing, Attachments: files, People: map[string]string{"a@x": "s"}}},
	}
	for name, tt := range map[string]struct {
		mailing string
		change  func(*sessim.Entry)
		want    []string
	}{
		"unchanged":                 {"", func(*sessim.Entry) {}, nil},
		"subject":                   {"", func(e *sessim.Entry) { e.Subject = "t" }, []string{Altered}},
		"html":                      {"", func(e *sessim.Entry) { e.HTMLSHA256 = "i" }, []string{Altered}},
		"content":                   {"", func(e *sessim.Entry) { e.Attachments[0].SHA256 = "2" }, []string{Altered}},
		"name":                      {"", func(e *sessim.Entry) { e.Attachments[0].FileName = "b.pdf" }, []string{Altered}},
		"type":                      {"", func(e *sessim.Entry) { e.Attachments[0].ContentType = "text/csv" }, []string{Altered}},
		"no attachment":             {"", func(e *sessim.Entry) { e.Attachments = nil }, []string{Altered}},
		"not accepted":              {"", func(e *sessim.Entry) { e.Attachments, e.Accepted = nil, false }, nil},
		"no cc":                     {"", func(e *sessim.Entry) { e.CC = nil }, []string{Altered}},
		"another cc":                {"", func(e *sessim.Entry) { e.CC = []string{"d@x"} }, []string{Altered}},
		"a bcc":                     {"", func(e *sessim.Entry) { e.BCC = []string{"c@x"} }, []string{Altered}},
		"another sender":            {"", func(e *sessim.Entry) { e.From = cluster.Sender("Caos 2") }, []string{Promise}},
		"another company's tag":     {"", func(e *sessim.Entry) { e.CompanyID = "2" }, []string{Promise}},
		"mailing":                   {mailing.String(), func(e *sessim.Entry) { e.HTMLSHA256 = "i" }, nil},
		"mailing, another subject":  {mailing.String(), func(e *sessim.Entry) { e.Subject = "t" }, []string{Altered}},
		"mailing, another sender":   {mailing.String(), func(e *sessim.Entry) { e.From = cluster.Sender("Caos 2") }, []string{Promise}},
		"mailing, no attachment":    {mailing.String(), func(e *sessim.Entry) { e.Attachments = nil }, []string{Altered}},
		"mailing, wrong attachment": {mailing.String(), func(e *sessim.Entry) { e.Attachments[0].SHA256 = "2" }, []string{Altered}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(nil, records, nil)
			c.emails["1"] = &row{id: "1", to: "a@x", mailing: tt.mailing, company: "Caos 1", companyID: "1"}
			e := sessim.Entry{
				OutboxID: "1", CompanyID: "1", From: cluster.Sender("Caos 1"), Accepted: true, Subject: "s", HTMLSHA256: "h", Attachments: []sessim.Attachment{arrived},
			}
			if tt.mailing == "" {
				e.CC = []string{"c@x"}
			}
			tt.change(&e)
			c.checkContents([]sessim.Entry{e, e})
			if got := promises(c.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
			if whole := c.Counts.Contents.Attachments; whole != len(e.Attachments) && tt.want == nil || whole > 1 {
				t.Errorf("%d whole attachments", whole)
			}
		})
	}
}
