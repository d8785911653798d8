package outbox_test

import (
	"fmt"
	"slices"
	"strings"
)

// body is a valid email as passed by a program in another language.
func body(change func(map[string]any)) map[string]any {
	e := map[string]any{
		"to": "ana@example.com", "subject": "Sua entrevista", "html": "<p>Olá!</p>",
		"recipient": map[string]any{"externalId": "CAND-42", "email": "ana@example.com"},
	}
	if change != nil {
		change(e)
	}
	return e
}

func field(path string, value any) func(map[string]any) {
	return func(e map[string]any) {
		if name, ok := strings.CutPrefix(path, "recipient."); ok {
			e["recipient"].(map[string]any)[name] = value
			return
		}
		e[path] = value
	}
}

func without(path string) func(map[string]any) { return func(e map[string]any) { delete(e, path) } }

// letters returns n letters.
func letters(n int) string { return strings.Repeat("á", n) }

// wrongEmails are bodies with their expected faults; "" is valid.
func wrongEmails() map[string]struct {
	change func(map[string]any)
	want   string
} {
	type wrong = struct {
		change func(map[string]any)
		want   string
	}
	ten := map[string]any{}
	for i := range 11 {
		ten["X-"+string(rune('A'+i))] = "1"
	}
	all := map[string]wrong{
		"as it should be":                   {nil, ""},
		"no subject":                        {without("subject"), "subject REQUIRED"},
		"empty subject":                     {field("subject", ""), "subject REQUIRED"},
		"no html":                           {without("html"), "html REQUIRED"},
		"no recipient":                      {without("recipient"), "recipient REQUIRED"},
		"no to":                             {func(e map[string]any) { delete(e, "to"); field("recipient.email", "")(e) }, "to REQUIRED"},
		"a bad to alone":                    {func(e map[string]any) { e["to"] = "ana"; delete(e["recipient"].(map[string]any), "email") }, "to INVALID_EMAIL"},
		"an address that is left out":       {func(e map[string]any) { delete(e["recipient"].(map[string]any), "email") }, ""},
		"an empty address of the recipient": {field("recipient.email", ""), ""},
		"a recipient without an identifier": {func(e map[string]any) { delete(e["recipient"].(map[string]any), "externalId") }, "recipient REQUIRED"},
		"another person":                    {field("recipient.email", "eva@example.com"), "recipient.email MISMATCH"},
		"the domain in another case":        {field("recipient.email", "ana@EXAMPLE.com"), ""},
		"all in another case":               {field("recipient.email", "ANA@Example.com"), ""},
		"150 characters":                    {field("subject", letters(150)), ""},
		"151 characters":                    {field("subject", letters(151)), "subject TOO_LONG"},
		"a line end":                        {field("subject", "a\r\nBcc: x@example.com"), "subject BAD_CHARACTER"},
		"a line separator":                  {field("subject", "a\u2028b"), "subject BAD_CHARACTER"},
		"a next line":                       {field("subject", "a\u0085b"), "subject BAD_CHARACTER"},
		"UTF-8 read as Latin-1":             {field("subject", "PROMO\u00c3\u0087\u00c3\u0083O"), "subject BAD_CHARACTER"},
		"the first of C1":                   {field("subject", "a\u0080b"), "subject BAD_CHARACTER"},
		"the last of C1":                    {field("recipient.nome", "a\u009fb"), "recipient.nome BAD_CHARACTER"},
		"half a MiB":                        {field("text", letters(1<<18)), ""},
		"more than that":                    {field("text", letters(1<<18)+"a"), "text TOO_LONG"},
		"long html":                         {field("html", letters(1<<18)+"a"), "html TOO_LONG"},
		"six copies":                        {field("cc", []string{"a@b.cc", "b@b.cc", "c@b.cc", "d@b.cc", "e@b.cc", "f@b.cc"}), "cc TOO_MANY"},
		"six copies, one twice":             {field("cc", []string{"a@b.cc", "b@b.cc", "c@b.cc", "d@b.cc", "e@b.cc", "A@B.cc"}), ""},
		"six copies, one blank":             {field("bcc", []string{"a@b.cc", " ", "b@b.cc", "c@b.cc", "d@b.cc", "e@b.cc"}), ""},
		"six copies, one to":                {field("cc", []string{"a@b.cc", "b@b.cc", "c@b.cc", "d@b.cc", "e@b.cc", "ana@EXAMPLE.com"}), ""},
		"seven copies, one twice":           {field("cc", []string{"a@b.cc", "b@b.cc", "c@b.cc", "d@b.cc", "e@b.cc", "f@b.cc", "a@b.cc"}), "cc TOO_MANY"},
		"a copy a thousand times":           {field("bcc", slices.Repeat([]string{"a@b.cc"}, 1000)), ""},
		"six blind copies, one in cc": {func(e map[string]any) {
			e["cc"], e["bcc"] = []string{"f@b.cc"}, []string{"a@b.cc", "b@b.cc", "c@b.cc", "d@b.cc", "e@b.cc", "F@b.cc"}
		}, ""},
		"too many in both": {func(e map[string]any) {
			e["cc"] = []string{"a@b.cc", "b@b.cc", "c@b.cc", "d@b.cc", "e@b.cc", "f@b.cc"}
			e["bcc"] = []string{"a@b.cc", "b@b.cc", "c@b.cc", "d@b.cc", "e@b.cc", "g@b.cc"}
		}, "cc TOO_MANY"},
		"six tags, one blank":                   {field("tags", []string{"a", "b", "", "c", "d", "e"}), ""},
		"a bad copy":                            {field("bcc", []string{"a@b.cc", "nobody"}), "bcc[1] INVALID_EMAIL"},
		"a bad reply-to":                        {field("replyTo", "a@b..cc"), "replyTo INVALID_EMAIL"},
		"two copies in one":                     {field("cc", []string{"v1@b.cc,v2@b.cc"}), "cc[0] INVALID_EMAIL"},
		"a line end in reply-to":                {field("replyTo", "a@b.cc\nBcc: x@b.cc"), "replyTo INVALID_EMAIL"},
		"a tab in a copy":                       {field("bcc", []string{"a\t@b.cc"}), "bcc[0] INVALID_EMAIL"},
		"six tags":                              {field("tags", []string{"a", "b", "c", "d", "e", "f"}), "tags TOO_MANY"},
		"an empty tag":                          {field("tags", []string{"", " "}), ""},
		"a tag of two lines":                    {field("tags", []string{"a\nb"}), "tags[0] BAD_CHARACTER"},
		"a long tag":                            {field("tags", []string{"a", letters(65)}), "tags[1] TOO_LONG"},
		"eleven headers":                        {field("headers", ten), "headers TOO_MANY"},
		"a reserved header":                     {field("headers", map[string]any{"bCC": "x@example.com"}), "headers.bCC RESERVED_HEADER"},
		"SES's own header":                      {field("headers", map[string]any{"X-SES-Tenant": "x"}), "headers.X-SES-Tenant RESERVED_HEADER"},
		"the header Resent-From":                {field("headers", map[string]any{"Resent-From": "x"}), "headers.Resent-From RESERVED_HEADER"},
		"the header resent-message-id":          {field("headers", map[string]any{"resent-message-id": "x"}), "headers.resent-message-id RESERVED_HEADER"},
		"the header ARC-Seal":                   {field("headers", map[string]any{"ARC-Seal": "x"}), "headers.ARC-Seal RESERVED_HEADER"},
		"the header arc-authentication-results": {field("headers", map[string]any{"arc-authentication-results": "x"}), "headers.arc-authentication-results RESERVED_HEADER"},
		"the header Authentication-Results":     {field("headers", map[string]any{"Authentication-Results": "x"}), "headers.Authentication-Results RESERVED_HEADER"},
		"the header Received-SPF":               {field("headers", map[string]any{"Received-SPF": "x"}), "headers.Received-SPF RESERVED_HEADER"},
		"the header DELIVERED-TO":               {field("headers", map[string]any{"DELIVERED-TO": "x"}), "headers.DELIVERED-TO RESERVED_HEADER"},
		"a header with a colon":                 {field("headers", map[string]any{"X:A": "x"}), "headers.X:A INVALID_HEADER_NAME"},
		"a header with a line end":              {field("headers", map[string]any{"X-A": "x\r\nBcc: y"}), "headers.X-A INVALID_HEADER_VALUE"},
		"a header of 901":                       {field("headers", map[string]any{"X-A": strings.Repeat("a", 901)}), ""},
		"a header of 996":                       {field("headers", map[string]any{"X-A": strings.Repeat("a", 993)}), ""},
		"a header of 997":                       {field("headers", map[string]any{"X-A": strings.Repeat("a", 994)}), "headers.X-A INVALID_HEADER_VALUE"},
		"a header value of 996":                 {field("headers", map[string]any{"X": strings.Repeat("a", 996)}), "headers.X INVALID_HEADER_VALUE"},
		"a header of 124 + 900":                 {field("headers", map[string]any{strings.Repeat("X", 124): strings.Repeat("a", 900)}), "headers." + strings.Repeat("X", 124) + " INVALID_HEADER_VALUE"},
		"a header of spaces":                    {field("headers", map[string]any{"X-A": "  "}), ""},
		"a header twice":                        {field("headers", map[string]any{"X-A": "1", "x-a": "2"}), "headers.x-a DUPLICATE_FIELD"},
		"a person's long id":                    {field("recipient.externalId", letters(201)), "recipient.externalId TOO_LONG"},
		"a person's long name":                  {field("recipient.nome", letters(201)), "recipient.nome TOO_LONG"},
		"a person's two lines":                  {field("recipient.razaoSocial", "a\nb"), "recipient.razaoSocial BAD_CHARACTER"},
		"a hash that is none":                   {field("recipient.cpfCnpjHash", strings.Repeat("A", 64)), "recipient.cpfCnpjHash INVALID_HASH"},
		"an id that is none":                    {field("recipient.recipientId", "42"), "recipient.recipientId INVALID_ID"},
		"priority 11":                           {field("priority", 11), "priority OUT_OF_RANGE"},
		"priority 10":                           {field("priority", 10), ""},
		"another delivery":                      {field("delivery", "exactly_once"), "delivery NOT_ALLOWED"},
		"a name without an address":             {field("from", "Acme"), "from INVALID_EMAIL"},
		"the company's from":                    {field("from", `"Acme, Inc." <billing@ACME.example>`), ""},
		"all at once": {func(e map[string]any) {
			e["subject"], e["priority"], e["tags"] = letters(151), 11, []string{"a\nb"}
		}, "priority OUT_OF_RANGE, subject TOO_LONG, tags[0] BAD_CHARACTER"},
		"an address twice": {func(e map[string]any) {
			e["cc"], e["bcc"] = []string{"ANA@example.com", "b@b.cc", "b@B.cc"}, []string{"B@b.cc", "c@b.cc"}
		}, ""},
	}
	for _, html := range []string{"<p> </p>", "<!-- -->", "<!-- a > b -->", "<p>&nbsp;&#8203;&#xFEFF;\u200b</p><br/>", "<html><head><title>t</title><style>p{}</style></head><body></body></html>"} {
		all["html that shows nothing: "+html] = wrong{field("html", html), "html SHOWS_NOTHING"}
	}
	for _, html := range []string{"5 < 6", "a", "<IMG src='x.png'>", "<hr>", "<td background='x.png'></td>", "<p style='background:url(x.png)'></p>", "&amp;", "<!-- x -->.", "<head><title>t</title><body>x"} {
		all["html that shows something: "+html] = wrong{field("html", html), ""}
	}
	for _, blank := range []string{"", "   ", "\t\r\n", "\u00a0", "\u200b", "\ufeff", "\u2060\u00ad", "\u3000"} {
		for _, name := range []string{"subject", "html"} {
			all[fmt.Sprintf("%s of %q", name, blank)] = wrong{field(name, blank), name + " REQUIRED"}
		}
		all[fmt.Sprintf("externalId of %q", blank)] = wrong{field("recipient.externalId", blank), "recipient REQUIRED"}
		all[fmt.Sprintf("all that may be left out is %q", blank)] = wrong{func(e map[string]any) {
			for _, name := range []string{"text", "replyTo", "from", "delivery"} {
				e[name] = blank
			}
			e["cc"], e["bcc"], e["tags"], e["headers"] = []string{blank, "a@b.cc"}, []string{blank}, []string{blank, "a"}, map[string]any{"X-A": blank}
			for _, name := range []string{"recipientId", "cpfCnpjHash", "nome", "razaoSocial"} {
				field("recipient."+name, blank)(e)
			}
		}, ""}
	}
	for name, address := range map[string]string{
		"no domain": "ana", "a domain of one label": "ana@localhost", "a space": "a na@example.com", "two dots": "a..b@example.com", "a dot in front": ".a@example.com",
		"a name": "Ana <ana@example.com>", "an address literal": "ana@[127.0.0.1]", "a number for a domain": "ana@127.0.0.1",
		"65 before the at": strings.Repeat("a", 65) + "@example.com", "a long label": "ana@" + strings.Repeat("a", 64) + ".com",
		"a hyphen in front": "ana@-example.com", "beyond ASCII": "aná@example.com", "quoted": `"ana"@example.com`, "two ats": "ana@eva@example.com",
		"a long one": "ana@" + strings.Repeat("abcdefghi.", 25) + "com",
	} {
		all["to with "+name] = wrong{func(e map[string]any) { field("to", address)(e); field("recipient.email", address)(e) }, "recipient.email INVALID_EMAIL, to INVALID_EMAIL"}
	}
	return all
}
