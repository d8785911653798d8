package load

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"strings"
)

// templateName is the name of every tenant's stored template, in two locales.
const templateName = "fatura"

// greetings are the first words of the template by its locale; "" is the default.
var greetings = map[string]string{"": "Hello", "pt": "Olá"}

// createTemplates creates and publishes the templates of all tenants.
func (l *Load) createTemplates(ctx context.Context) {
	for _, key := range l.params.Keys {
		for locale, greeting := range greetings {
			template := map[string]any{
				"name": templateName, "publish": true, "subject": greeting + ", {{number}}",
				"html": "<p>" + greeting + ", {{customer.name}}</p>{{#lines}}<p>{{text}}: {{amount}}</p>{{/lines}}" +
					"{{^lines}}<p>-</p>{{/lines}}<p>{{footer}}</p>",
				"variables": []map[string]any{{"name": "footer", "default": "Até logo"}, {"name": "lines", "default": []any{}}},
			}
			if locale != "" {
				template["locale"] = locale
			}
			body, _ := json.Marshal(template) // maps of strings always can
			l.retryUntil(ctx, request{
				method: http.MethodPost, path: "/v1/templates", key: key, contentType: "application/json", body: body,
			}, "template "+locale, http.StatusCreated, http.StatusOK)
		}
	}
}

// useTemplate replaces the email's subject and html by the template and its data. What the template
// gives is computed here, not by the gateway.
func (e *email) useTemplate(random *rand.Rand) {
	name := fmt.Sprintf("Silva & Filhos <%d>", e.serial)
	use := map[string]any{"name": templateName}
	data := map[string]any{"number": e.serial, "customer": map[string]any{"name": name}}
	greeting, footer, lines := greetings[""], "Até logo", ""
	if random.IntN(2) == 0 { // falls back to pt
		use["locale"], greeting = "pt-BR", greetings["pt"]
	}
	if random.IntN(2) == 0 {
		footer = "Obrigado"
		data["footer"] = footer
	}
	var list []map[string]any
	for n := range random.IntN(4) {
		text, amount := fmt.Sprintf("Item %d", n), fmt.Sprintf("R$ %d,90", random.IntN(1000))
		list = append(list, map[string]any{"text": text, "amount": amount})
		lines += fmt.Sprintf("<p>%s: %s</p>", text, amount)
	}
	if len(list) == 0 {
		lines = "<p>-</p>"
	} else {
		data["lines"] = list
	}
	e.write(fmt.Sprintf("%s, %d", greeting, e.serial),
		strings.Join([]string{"<p>", greeting, ", ", html.EscapeString(name), "</p>", lines, "<p>", footer, "</p>"}, ""))
	delete(e.request, "subject")
	delete(e.request, "html")
	use["data"] = data
	e.request["template"], e.content.Template = use, true
}
