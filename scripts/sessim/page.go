package sessim

import (
	"bytes"
	"embed"
	"html/template"
	"mime"
	"net/http"
	"strings"

	"email-gateway/scripts/sessim/sesmail"
)

// inboxLimit is the default number of mails that the inbox shows.
const inboxLimit = 100

//go:embed pages/*.html
var pageFiles embed.FS

// pagePolicy prevents a hostile mail from running scripts or fetching resources, in addition to the
// sandbox of its frame.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-src 'self'; form-action 'self'; base-uri 'none'"

// inboxPages show the stored mails.
type inboxPages struct {
	server    *Server
	templates *template.Template
}

// newInboxPages parses the embedded templates: an error in them shows at the first start.
func newInboxPages(s *Server) inboxPages {
	functions := template.FuncMap{"decoded": decoded}
	return inboxPages{s, template.Must(template.New("").Funcs(functions).ParseFS(pageFiles, "pages/*.html"))}
}

func (p inboxPages) addRoutes(m *http.ServeMux) {
	m.HandleFunc("GET /{$}", p.inboxPage)
	m.HandleFunc("GET /inbox.json", p.inboxJSON)
	m.HandleFunc("GET /messages/{id}", p.messagePage)
}

// decoded decodes a header as a mail reader does: display names are RFC 2047 encoded words.
func decoded(header string) string {
	if text, err := new(mime.WordDecoder).DecodeHeader(header); err == nil {
		return text
	}
	return header
}

// inboxView is the data of pages/inbox.html.
type inboxView struct {
	Query   inboxQueryText
	Mails   []*sesmail.Mail
	Summary Summary
	Rules   []Rule
}

type inboxQueryText struct{ To, OutboxID string }

func (p inboxPages) inboxPage(w http.ResponseWriter, r *http.Request) {
	q, err := parseInboxQuery(r)
	if err != nil {
		badControl(w, err)
		return
	}
	p.writePage(w, "inbox.html", inboxView{
		Query:   inboxQueryText{To: q.to, OutboxID: q.outboxID},
		Mails:   p.server.search(q),
		Summary: p.server.Summary(),
		Rules:   p.server.Rules(),
	})
}

func (p inboxPages) inboxJSON(w http.ResponseWriter, r *http.Request) {
	q, err := parseInboxQuery(r)
	if err != nil {
		badControl(w, err)
		return
	}
	writeJSON(w, http.StatusOK, p.server.search(q))
}

func parseInboxQuery(r *http.Request) (inboxQuery, error) {
	params := r.URL.Query()
	since, err := parseSince(params)
	if err != nil {
		return inboxQuery{}, err
	}
	limit, err := parseLimit(params, inboxLimit)
	if err != nil {
		return inboxQuery{}, err
	}
	return inboxQuery{to: params.Get("to"), outboxID: params.Get("outboxId"), since: since, limit: limit}, nil
}

// messagePage shows one mail, as JSON when the id ends in ".json".
func (p inboxPages) messagePage(w http.ResponseWriter, r *http.Request) {
	id, asJSON := strings.CutSuffix(r.PathValue("id"), ".json")
	m := p.server.mail(id)
	switch {
	case m == nil:
		writeJSON(w, http.StatusNotFound, map[string]string{"message": "no mail with that id is stored"})
	case asJSON:
		writeJSON(w, http.StatusOK, m)
	default:
		p.writePage(w, "message.html", m)
	}
}

func (p inboxPages) writePage(w http.ResponseWriter, name string, view any) {
	var page bytes.Buffer
	if err := p.templates.ExecuteTemplate(&page, name, view); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	_, _ = w.Write(page.Bytes()) // the client may have disconnected
}
