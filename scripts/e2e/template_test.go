package e2e_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// content is a subject with bodies, as previews and the inbox show it.
type content struct{ Subject, HTML, Text string }

// What a preview shows is what SES receives, byte for byte, the text part that the worker makes included.
func TestTemplate_PreviewIsWhatIsSent(t *testing.T) {
	t.Parallel()
	s := startSystem(t, bulk(t, brokerURL(t)))
	for _, template := range []map[string]any{
		{"name": "html", "subject": "Nota {{number}}", "html": "<h1>Olá, {{name}}</h1><table>{{#lines}}<tr><td>{{.}}</td></tr>{{/lines}}</table>\n<a href=\"https://x.example/?n={{name}}\">ver</a>"},
		{"name": "text", "subject": "Nota {{number}}", "text": "Olá, {{name}}\n{{#lines}}\n- {{.}}\n{{/lines}}\r\nTchau & até"},
		{"name": "both", "subject": "Nota {{number}}", "html": "<p>{{name}}</p>{{^gone}}<p>-</p>{{/gone}}", "text": "{{name|x}} ", "variables": []map[string]any{{"name": "gone", "required": false}}},
	} {
		template["publish"] = true
		name := template["name"].(string) //nolint:forcetypeassert // see above
		if status, answer := s.call(http.MethodPost, "/v1/templates", template, nil); status != http.StatusCreated {
			t.Fatalf("%d %s", status, answer)
		}
		data := map[string]any{"number": 7.5, "name": "Ana <b> \"&\" 😀", "lines": []string{"Café", "a < b"}}
		for _, autoText := range []bool{true, false} {
			status, answer := s.call(http.MethodPost, "/v1/templates/"+name+"/preview", map[string]any{"data": data, "autoText": autoText}, nil)
			var preview content
			if err := json.Unmarshal(answer, &preview); err != nil || status != http.StatusOK {
				t.Fatalf("%d %s", status, answer)
			}
			if (preview.Text != "") != (autoText || name != "html") {
				t.Errorf("%s, autoText %v: text %q", name, autoText, preview.Text)
			}
			id := s.send("ana@example.com", func(body map[string]any) {
				delete(body, "subject")
				delete(body, "html")
				delete(body, "text")
				body["autoText"], body["template"] = autoText, map[string]any{"name": name, "data": data}
			})
			s.await(id, "SENT")
			if sent := receivedContent(s, func(m simMail) bool { return m.OutboxID == id }); sent != preview {
				t.Errorf("sent    %q\npreview %q", sent, preview)
			}
		}
	}
	previewedMailing(s)
}

// previewedMailing compares the dry run of a mailing with a template with what is sent.
func previewedMailing(s *system) {
	s.t.Helper()
	template := map[string]any{
		"name": "natal", "publish": true, "subject": "Olá, {{nome}}", "html": "{{#cidade}}<p>{{nome}} de {{cidade}}</p>{{/cidade}}{{^cidade}}<p>{{nome}}</p>{{/cidade}}",
		"variables": []map[string]any{{"name": "nome", "default": "cliente"}},
	}
	if status, answer := s.call(http.MethodPost, "/v1/templates", template, nil); status != http.StatusCreated {
		s.t.Fatalf("%d %s", status, answer)
	}
	file := []byte("email;nome;cidade\nbia@example.com;Bia & Cia;Recife\ncaio@example.com;;\n")
	form := map[string]string{"subject": "", "html": "", "text": "", "template": "natal", "dryRun": "true"}
	var dry struct {
		Preview []struct {
			Email string
			content
		}
	}
	status, answer := s.upload("natal.csv", file, form)
	if err := json.Unmarshal(answer, &dry); err != nil || status != http.StatusAccepted || len(dry.Preview) != 2 {
		s.t.Fatalf("%d %s", status, answer)
	}
	delete(form, "dryRun")
	status, answer = s.upload("natal.csv", file, form)
	var accepted mailingView
	if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted {
		s.t.Fatalf("%d %s", status, answer)
	}
	// Neither a publication nor a deletion changes a mailing.
	template["subject"] = "Oi"
	if status, answer := s.call(http.MethodPost, "/v1/templates", template, nil); status != http.StatusCreated {
		s.t.Fatalf("%d %s", status, answer)
	}
	if status, answer := s.call(http.MethodDelete, "/v1/templates/natal", nil, nil); status != http.StatusNoContent {
		s.t.Fatalf("%d %s", status, answer)
	}
	if done := s.awaitMailing(accepted.MailingID, "COMPLETED"); done.Sent != 2 {
		s.t.Fatalf("%+v", done)
	}
	for _, p := range dry.Preview {
		if sent := receivedContent(s, func(m simMail) bool { return slices.Contains(m.To, p.Email) }); sent != p.content || !strings.Contains(sent.Text, "\n") {
			s.t.Errorf("sent    %q\npreview %q", sent, p.content)
		}
	}
}

// receivedContent is the content of the first mail of the inbox that matches.
func receivedContent(s *system, matches func(simMail) bool) content {
	s.t.Helper()
	mails := s.ses.Inbox()
	i := slices.IndexFunc(mails, matches)
	if i < 0 {
		s.t.Fatal("the mail is not in the inbox")
	}
	return content{mails[i].Subject, mails[i].HTML, mails[i].Text}
}
