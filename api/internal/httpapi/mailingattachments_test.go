package httpapi_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/httpapi"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
)

// attaching makes the part of a mailing's form that names stored files.
func attaching(tb testing.TB, files ...fields) part {
	tb.Helper()
	text, err := json.Marshal(files)
	if err != nil {
		tb.Fatal(err)
	}
	return part{name: "attachments", value: string(text)}
}

func TestMailing_ShowsAttachments(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	rules, _ := g.uploadFile(t, pdf).json(t)["id"].(string)
	logo, _ := g.uploadFile(t, png).json(t)["id"].(string)
	files := attaching(t,
		fields{"filename": "Regulamento março.pdf", "contentType": "application/pdf", "fileId": rules},
		fields{"filename": "logo.png", "contentType": "image/png", "fileId": logo, "contentId": "logo"},
	)
	id := g.mail(t, given(files, part{name: "html", value: `<img src="cid:logo"><p>{{nome}}</p>`}, part{name: "start", value: "false"}))
	want := []any{
		map[string]any{
			"fileId": rules, "filename": "Regulamento março.pdf", "contentType": "application/pdf",
			"size": float64(len(pdf)), "sha256": sum(pdf), "disposition": "attachment",
		},
		map[string]any{
			"fileId": logo, "filename": "logo.png", "contentType": "image/png",
			"size": float64(len(png)), "sha256": sum(png), "contentId": "logo", "disposition": "inline",
		},
	}
	compare := func(what string, mailing map[string]any) {
		if diff := cmp.Diff(want, mailing["attachments"]); mailing["mailingId"] != id || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", what, mailing["mailingId"], diff)
		}
	}
	compare("show", g.do(t, call{Path: "/v1/mailings/" + id}).json(t))
	compare("start", g.do(t, call{Method: http.MethodPost, Path: "/v1/mailings/" + id + "/start"}).json(t))

	// The second mailing has no attachments, and the third one is a dry run, which stores none.
	g.mail(t, given(part{name: "name", value: "without files"}))
	g.mail(t, given(files, part{name: "html", value: `<img src="cid:logo">`}, part{name: "dryRun", value: "true"}))
	page, _ := g.do(t, call{Path: "/v1/mailings"}).json(t)["mailings"].([]any)
	if len(page) != 3 {
		t.Fatalf("%d mailings, want 3", len(page))
	}
	for _, one := range page[:2] {
		if m, _ := one.(map[string]any); m["attachments"] != nil {
			t.Errorf("%v has attachments: %v", m["filename"], m["attachments"])
		}
	}
	oldest, _ := page[2].(map[string]any)
	compare("list", oldest)

	// Retention deletes the content of a mailing, and with it the attachments.
	g.Run(t, `UPDATE mailings SET html = '' WHERE id = $1`, id)
	if m := g.do(t, call{Path: "/v1/mailings/" + id}).json(t); m["mailingId"] != id || m["attachments"] != nil {
		t.Errorf("without content: %v", m)
	}
}

// Every cid: address of a mailing's html needs an attachment.
func TestMailing_UnknownContentID(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	logo, _ := g.uploadFile(t, png).json(t)["id"].(string)
	html := part{name: "html", value: `<img src="cid:logo"><p>{{nome}}</p>`}
	for name, parts := range map[string][]part{
		"no attachments": {html},
		"another id":     {html, attaching(t, fields{"filename": "a.png", "contentType": "image/png", "fileId": logo, "contentId": "map"})},
	} {
		r := g.upload(t, given(parts...), nil)
		if found := r.problem(t).Errors; r.Status != http.StatusUnprocessableEntity || len(found) != 1 || found[0].Field != "html" || found[0].Code != "UNKNOWN_CONTENT_ID" {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
	}
}

// The part is read like a JSON body: each mistake has its path, and none is accepted silently.
func TestMailing_AttachmentsRefused(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id, _ := g.uploadFile(t, pdf).json(t)["id"].(string)
	for value, want := range map[string]map[string]string{
		`[{"filename":"a.pdf","fileId":"` + id + `","fileID":"` + id + `"}]`: {"attachments[0].fileID": "UNKNOWN_FIELD"},
		`[{"Filename":"a.pdf","filename":"a.pdf","fileId":"` + id + `"}]`:    {"attachments[0].Filename": "UNKNOWN_FIELD"},
		`[{"filename":"a.pdf","filename":"b.pdf","fileId":"` + id + `"}]`:    {"attachments[0].filename": "DUPLICATE_FIELD"},
		`[{"filename":"a.pdf","fileId":"` + id + `"},"b.pdf"]`:               {"attachments[1]": "WRONG_TYPE", "attachments[1].filename": "REQUIRED", "attachments[1].content": "REQUIRED"},
		`[{"filename":"a.pdf","fileId":"` + id + `","contentId":null}]`:      {"attachments[0].contentId": "WRONG_TYPE"},
		`[{"filename":7,"fileId":"` + id + `","contentId":"\ud800"}]`:        {"attachments[0].filename": "WRONG_TYPE", "attachments[0].contentId": "BAD_CHARACTER"},
		`[{"filename":"a.pdf","fileId":"` + id + `","content":"eA=="}]`:      {"attachments[0].fileId": "NOT_ALLOWED"},
		`[{"filename":"a.pdf","content":"eA=="}]`:                            {"attachments[0].content": "NOT_ALLOWED"},
		`{"filename":"a.pdf","fileId":"` + id + `"}`:                         {"attachments": "WRONG_TYPE"},
		`null`:                                  {"attachments": "WRONG_TYPE"},
		`[` + strings.Repeat(`{},`, 10) + `{}]`: {"attachments": "TOO_MANY"},
		`[{"filename":"a.pdf","fileId":"` + id + `"}`:                   {"attachments": "INVALID_JSON"},
		`[{"filename":"a.pdf","fileId":"` + id + `"}],"attachments":[]`: {"attachments": "INVALID_JSON"},
		`[{"filename":"a.pdf","fileId":"` + id + `"}] [`:                {"attachments": "INVALID_JSON"},
	} {
		r := g.upload(t, given(part{name: "attachments", value: value}), nil)
		got := map[string]string{}
		for _, f := range r.problem(t).Errors {
			got[f.Field] = f.Code
		}
		if diff := cmp.Diff(want, got); r.Status != http.StatusUnprocessableEntity || diff != "" {
			t.Errorf("%s: %d %s", value, r.Status, r.Body)
		}
	}
	valid := `[ {"fileId":"` + id + `", "filename":"a.pdf", "contentId":" "} ]`
	if r := g.upload(t, given(part{name: "attachments", value: valid}), nil); r.Status != http.StatusAccepted {
		t.Errorf("%s: %d %s", valid, r.Status, r.Body)
	}
}

// A file that is deleted between the checks and the commit is named by its index.
func TestMailing_AttachmentDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	g := startOn(t, d, func(p *httpapi.Params) {
		p.Store = ingester{p.Store, func(ctx context.Context, m mailingstore.NewMailing, lines iter.Seq2[mailingstore.Line, error]) (mailingstore.Counts, []byte, error) {
			d.Run(t, `DELETE FROM stored_files WHERE id = $1`, m.Attachments[1].FileID)
			return d.Store.IngestMailing(ctx, m, lines)
		}}
	})
	rules, _ := g.uploadFile(t, pdf).json(t)["id"].(string)
	logo, _ := g.uploadFile(t, png).json(t)["id"].(string)
	r := g.upload(t, given(attaching(t,
		fields{"filename": "a.pdf", "contentType": "application/pdf", "fileId": rules},
		fields{"filename": "logo.png", "contentType": "image/png", "fileId": logo},
	)), nil)
	if r.Status != http.StatusUnprocessableEntity {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if found := r.problem(t).Errors; len(found) != 1 || found[0].Field != "attachments[1].fileId" || found[0].Code != "FILE_NOT_FOUND" {
		t.Errorf("%v", found)
	}
}
