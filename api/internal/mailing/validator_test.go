package mailing_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/keyring"
)

// shelf is an in-memory bucket.
type shelf map[string][]byte

func (s shelf) Put(_ context.Context, key string, r io.Reader) (err error) {
	text, err := io.ReadAll(r)
	if err == nil {
		s[key] = text
	}
	return err
}

func (s shelf) Get(_ context.Context, key string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s[key])), nil
}

func (s shelf) Delete(_ context.Context, key string) error {
	delete(s, key)
	return nil
}

func (s shelf) URL(key string) string { return "shelf:" + key }

type counting struct{ n int }

func (c *counting) Take() string {
	c.n++
	return fmt.Sprintf("TOKEN%021d", c.n)
}

// templateSet holds the templates of a mailing.
type templateSet struct{ subject, html, text string }

var plain = templateSet{subject: "Oi {{nome}}", html: `<p>{{nome}}</p><a href="{{unsubscribe_url}}">sair</a>`}

// noFields fits files without a name.
var noFields = templateSet{subject: "Oi", html: "<p>Oi</p>"}

// openedFile is a file, kept and opened, with its validator.
func openedFile(t *testing.T, l templateSet, file string) (*mailing.Reading, *mailing.Validator, keyring.Ring, uuid.UUID) {
	t.Helper()
	return openedWith(t, &counting{}, l, file)
}

func openedWith(t *testing.T, tokens mailing.TokenSource, l templateSet, file string) (*mailing.Reading, *mailing.Validator, keyring.Ring, uuid.UUID) {
	t.Helper()
	return openedBy(t, tokens, l, file, func(*mailing.ValidatorParams) {})
}

// resultsWith is results with changed parameters.
func resultsWith(t *testing.T, l templateSet, file string, change func(*mailing.ValidatorParams)) (*mailing.Validator, []string) {
	t.Helper()
	reading, validator, _, _ := openedBy(t, &counting{}, l, file, change)
	return validator, resultsOf(reading, validator)
}

func openedBy(t *testing.T, tokens mailing.TokenSource, l templateSet, file string, change func(*mailing.ValidatorParams)) (*mailing.Reading, *mailing.Validator, keyring.Ring, uuid.UUID) {
	t.Helper()
	ring, err := keyring.Parse("k:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	company := uuid.New()
	stored := shelf{}
	files := mailing.FileStore{Bucket: stored, Ring: ring}
	f, err := files.Keep(t.Context(), company, uuid.New(), strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(stored[f.Key], []byte("@example.com")) {
		t.Error("the file is stored unencrypted")
	}
	reading, err := files.Open(t.Context(), f, csvfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	templates, faults := mailing.ParseTemplates(l.subject, l.html, l.text)
	if faults = append(faults, templates.CheckFields(reading.Header())...); len(faults) > 0 {
		t.Fatal(faults)
	}
	params := mailing.ValidatorParams{
		Company: company, Header: reading.Header(), Templates: templates, Ring: ring, Tokens: tokens, Unsubscribe: "https://gw.example/u/" + strings.Repeat("x", 100),
	}
	change(&params)
	validator, err := mailing.NewValidator(params)
	if err != nil {
		t.Fatal(err)
	}
	return reading, validator, ring, company
}

// results formats the lines of a file: "line address", "line address reason" or "line column CODE".
func results(t *testing.T, l templateSet, file string) []string {
	t.Helper()
	reading, validator, _, _ := openedFile(t, l, file)
	return resultsOf(reading, validator)
}

func resultsOf(reading *mailing.Reading, validator *mailing.Validator) []string {
	var all []string
	for line, err := range mailing.Lines(reading, validator) {
		switch {
		case err != nil:
			all = append(all, err.Error())
		case line.Entry != nil:
			all = append(all, strings.TrimSpace(fmt.Sprint(line.Entry.Line, " ", line.Entry.Email, " ", line.Entry.InvalidReason)))
		default:
			all = append(all, strings.Join(strings.Fields(fmt.Sprint(line.Reject.Line, " ", line.Reject.Column, " ", line.Reject.Code)), " "))
		}
	}
	return all
}

func TestValidator(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 201)
	for name, c := range map[string]struct {
		templates templateSet
		file      string
		want      []string
	}{
		"control characters in an address": {plain, "email;nome\n\x1b]0;x\n\x1b@b;" + strings.Repeat("x", 200) + "\n", []string{"2 email INVALID_EMAIL", "3 \ufffd@b syntax"}},
		"addresses": {plain, "email;nome\nana@example.com;Ana\n  bia@EXAMPLE.com ;B\n;x\nsemarroba;x\na@@b;x\nçá@example.com;x\nx@mailinator.com;x\nú@b\nzé@josé.example;x\nze@josé.example;x\n" +
			strings.Repeat("a", 250) + "@b.example;x\n" + strings.Repeat("a", 70) + "@b.example;x\n", []string{
			"2 ana@example.com", "3 bia@EXAMPLE.com", "4 email MISSING_EMAIL", "5 email INVALID_EMAIL", "6 a@@b syntax", "7 çá@example.com syntax",
			"8 x@mailinator.com disposable", "9 ú@b syntax", "10 zé@josé.example syntax", "11 ze@xn--jos-dma.example",
			"12 email INVALID_EMAIL", "13 " + strings.Repeat("a", 70) + "@b.example syntax",
		}},
		"people": {plain, "E-mail;Nome;Razão Social;Código do Cliente\na@example.com;" + long + ";;\nb@example.com;Bia;" + long + ";\nc@example.com;C;;" + long +
			"\nd@example.com;\"D\x01E\";;\ne@example.com;E;Acme Ltda;42\n", []string{
			"2 Nome TOO_LONG", "3 Razão Social TOO_LONG", "4 Código do Cliente TOO_LONG", "5 Nome BAD_CHARACTER", "6 e@example.com",
		}},
		"tax ids": {plain, "email;nome;cpf;cnpj\na@example.com;A;529.982.247-25;\nb@example.com;B;;11.222.333/0001-81\nc@example.com;C;529.982.247-26;\nd@example.com;D;52998224725;123\ne@example.com;E;;\nf@example.com;F;529\u2011982.247–25;11.222.333⁄0001\u00a0−81\n=\"g@example.com\";G;=\"52998224725\";\n", []string{
			"2 a@example.com", "3 b@example.com", "4 cpf INVALID_CPF_CNPJ", "5 cnpj INVALID_CPF_CNPJ", "6 e@example.com", "7 f@example.com", "8 g@example.com",
		}},
		"tax ids, empty masks": {noFields, "email;cpf;cnpj\na@example.com;   .   .   -  ;__.___.___/____-__\nb@example.com;-;11.222.333/0001-81\nc@example.com;***.***.***-**;–\nd@example.com;___.___.___-_1;\ne@example.com;000.000.000-00;\nf@example.com;n/a;\n", []string{
			"2 a@example.com", "3 b@example.com", "4 c@example.com", "5 cpf INVALID_CPF_CNPJ", "6 cpf INVALID_CPF_CNPJ", "7 cpf INVALID_CPF_CNPJ",
		}},
		"tax ids, beside a document's number": {noFields, "email;documento;cpf\na@example.com;12.345.678-9;529.982.247-25\nb@example.com;NF 4711;\nc@example.com;529.982.247-25;\nd@example.com;529.982.247-26;529.982.247-26\n", []string{
			"2 a@example.com", "3 b@example.com", "4 c@example.com", "5 cpf INVALID_CPF_CNPJ",
		}},
		"tax ids, under a document's name alone": {noFields, "email;Nº do documento\na@example.com;12.345.678-9\nb@example.com;529.982.247-25\nc@example.com;-\n", []string{
			"2 Nº do documento INVALID_CPF_CNPJ", "3 b@example.com", "4 c@example.com",
		}},
		"tax ids, beside a document's number that is not used": {noFields, "email;documento;cpf/cnpj\na@example.com;12.345.678-9;529.982.247-25\nb@example.com;529.982.247-25;12.345.678-9\n", []string{
			"2 a@example.com", "3 cpf/cnpj INVALID_CPF_CNPJ",
		}},
		"links": {
			templateSet{"Oi", `<a href="{{link}}">x</a><a href="https://{{loja}}.example.com/">y</a>`, "{{link}}"},
			"email;link;loja\na@example.com;https://x.example/a;um\nb@example.com;javascript:alert(1);um\nc@example.com;https://x.example;u m\nd@example.com;;um\n",
			[]string{"2 a@example.com", "3 link INVALID_LINK", "4 loja INVALID_LINK", "5 link INVALID_LINK"},
		},
		"subjects": {
			templateSet{"{{oferta}}", "<p>x</p>", ""},
			"email,oferta\na@example.com,dez\nb@example.com,\nc@example.com," + strings.Repeat("á", 150) + "\nd@example.com," + strings.Repeat("á", 151) + "\ne@example.com,\"um\ndois\"\nf@example.com,um\x01dois\n",
			[]string{"2 a@example.com", "3 SUBJECT_LENGTH", "4 c@example.com", "5 SUBJECT_LENGTH", "6 e@example.com", "8 oferta BAD_CHARACTER"},
		},
		"bodies": {
			templateSet{"x", "<p>" + strings.Repeat("{{texto}}", 9000) + "</p>", ""},
			"email,texto\na@example.com,aaaa\nb@example.com," + strings.Repeat("b", 60) + "\nc@example.com," + strings.Repeat("<", 20) + "\n",
			[]string{"2 a@example.com", "3 BODY_TOO_LARGE", "4 BODY_TOO_LARGE"},
		},
		"rows": {plain, "email;nome\na@example.com;A;x;y\n\n;\nb@example.com;\"B\nc@example.com;C\n", []string{
			"2 WRONG_FIELD_COUNT", "5 nome UNCLOSED_QUOTE", "6 c@example.com",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, results(t, c.templates, c.file)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValidator_Entry(t *testing.T) {
	t.Parallel()
	reading, validator, ring, company := openedFile(t, templateSet{"{{nome}}, {{Valor Devido}}", `<p>{{cidade}} {{valor_devido}} {{email}} {{token}}</p>`, "{{cidade}}"},
		"Nome;E-mail;CPF;Valor devido;Cidade;Razão social;ID externo\nAna;ana@example.com;529.982.247-25;R$ 10,00;Óbidos;Acme;C-1\n")
	if diff := cmp.Diff([]string{"Valor Devido", "cidade", "valor_devido"}, validator.Fields()); diff != "" {
		t.Error(diff)
	}
	for line, err := range mailing.Lines(reading, validator) {
		if err != nil || line.Entry == nil {
			t.Fatal(err, line.Reject)
		}
		e := *line.Entry
		opened, err := ring.Open(company, e.CPFCNPJ)
		sum := sha256.Sum256([]byte("52998224725"))
		if err != nil || opened != "52998224725" || e.CPFCNPJHash != hex.EncodeToString(sum[:]) {
			t.Errorf("%q %v %s", opened, err, e.CPFCNPJHash)
		}
		if diff := cmp.Diff([]string{"R$ 10,00", "Óbidos", "R$ 10,00"}, e.Fields); diff != "" {
			t.Error(diff)
		}
		if e.Nome != "Ana" || e.RazaoSocial != "Acme" || e.ExternalID != "C-1" || e.Token != "TOKEN000000000000000000001" || e.ID.Version() != 7 {
			t.Errorf("%+v", e)
		}
	}
}

// An id that many people would have is ignored and reported. The row is sent, and a field of the template has the cell.
func TestValidator_IgnoredID(t *testing.T) {
	t.Parallel()
	l := templateSet{"Oi", "<p>{{Código do Cliente|sem código}}</p>", ""}
	ids := map[string]string{ // by cell
		"C-1": "C-1", "10": "10", "0A": "0A", "1E-05": "1E-05", "12E5": "12E5", "NULL": "NULL", "１": "１", "": "",
		"0": "", "000": "", "0,00": "", "-": "", "***": "", "—": "", "1,23457E+12": "", "1.23457e+12": "", "1E+15": "", "#N/D": "", `\N`: "",
	}
	cells := slices.Sorted(maps.Keys(ids))
	file := "email;Código do Cliente\n"
	for i, cell := range cells {
		file += fmt.Sprintf("a%d@example.com;%s\n", i, cell)
	}
	reading, validator, _, _ := openedBy(t, &counting{}, l, file, func(p *mailing.ValidatorParams) { p.RejectEmpty = true })
	for line, err := range mailing.Lines(reading, validator) {
		if err != nil || line.Entry == nil {
			t.Fatal(err, line.Reject)
		}
		e, cell := line.Entry, cells[line.Entry.Line-2]
		if e.ExternalID != ids[cell] || slices.Equal(e.EmptyFields, []string{"Código do Cliente"}) != (cell != ids[cell]) {
			t.Errorf("%s: the id is %q, reported is %q", cell, e.ExternalID, e.EmptyFields)
		}
		want := cell
		if cell == "" || cell == "#N/D" || cell == `\N` {
			want = "sem código"
		}
		if !slices.Equal(e.Fields, []string{want}) {
			t.Errorf("%s: the field is %q", cell, e.Fields)
		}
	}
	// An error value is an empty field, of which the template has no default here.
	_, strict := resultsWith(t, templateSet{"Oi", "<p>{{Código do Cliente}}</p>", ""}, "email;Código do Cliente\na@example.com;-\nb@example.com;#N/D\n",
		func(p *mailing.ValidatorParams) { p.RejectEmpty = true })
	if diff := cmp.Diff([]string{"2 a@example.com", "3 Código do Cliente EMPTY_FIELD"}, strict); diff != "" {
		t.Error(diff)
	}
}

// A row's CPF or CNPJ is taken from the column that contains one: an empty mask and the number of another document are
// ignored.
func TestValidator_TaxIDOfRow(t *testing.T) {
	t.Parallel()
	const cpf, cnpj = "52998224725", "11222333000181"
	for name, c := range map[string]struct {
		file string
		want []string // per row, "" = none
	}{
		"masks":                      {"email;cpf;cnpj\na@example.com;   .   .   -  ;11.222.333/0001-81\nb@example.com;___.___.___-__;-\n", []string{cnpj, ""}},
		"another document":           {"email;documento;cpf\na@example.com;12.345.678-9;529.982.247-25\nb@example.com;12.345.678-9;\n", []string{cpf, ""}},
		"another document, cnpj":     {"email;cnpj;Document number\na@example.com;11.222.333/0001-81;4711\n", []string{cnpj}},
		"a CPF under a general name": {"email;documento;cnpj\na@example.com;529.982.247-25;\nb@example.com;529.982.247-25;11.222.333/0001-81\n", []string{cpf, cnpj}},
		"a CNH that may be a CPF":    {"email;documento;cpf\na@example.com;111.444.777-35;529.982.247-25\nb@example.com;529.982.247-25;\n", []string{cpf, cpf}},
		"a general name, unused":     {"email;documento;tax id\na@example.com;529.982.247-25;11.222.333/0001-81\nb@example.com;529.982.247-25;\n", []string{cnpj, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reading, validator, ring, company := openedFile(t, noFields, c.file)
			var got []string
			for line, err := range mailing.Lines(reading, validator) {
				if err != nil || line.Entry == nil {
					t.Fatal(err, line.Reject)
				}
				number := ""
				if line.Entry.CPFCNPJHash != "" {
					if number, err = ring.Open(company, line.Entry.CPFCNPJ); err != nil {
						t.Fatal(err)
					}
				}
				got = append(got, number)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A row with an empty field is sent with the default, and reported if there is none.
func TestValidator_EmptyFields(t *testing.T) {
	t.Parallel()
	l := templateSet{"Olá, {{nome|cliente}}!", "<p>{{nome}} de {{cidade|sua cidade}}{{uf}}{{uf|}} {{Cidade}} {{email|x}}</p>", "{{d1}} {{nome|cliente}}"}
	const file = "E-mail;Nome;Cidade;UF;d1\na@example.com;Ana;Recife;PE;1\nb@example.com;;;;2\nc@example.com;\u200b\nd@example.com;D;;;4\n;;;;\n"
	reading, validator, _, _ := openedFile(t, l, file)
	type seen struct {
		Line            int
		Fields, Missing []string
	}
	var got []seen
	for line, err := range mailing.Lines(reading, validator) {
		if err != nil || line.Entry == nil {
			t.Fatal(err, line.Reject)
		}
		e := line.Entry
		got = append(got, seen{e.Line, slices.Clone(e.Fields), slices.Clone(e.EmptyFields)})
	}
	want := []seen{
		{2, []string{"Ana", "Recife", "PE", "PE", "Recife", "1"}, []string{}},
		{3, []string{"cliente", "sua cidade", "", "", "", "2"}, []string{"Nome", "Cidade", "UF"}},
		{4, []string{"cliente", "sua cidade", "", "", "", ""}, []string{"Nome", "Cidade", "UF", "d1"}},
		{5, []string{"D", "sua cidade", "", "", "", "4"}, []string{"Cidade", "UF"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	// The stored templates have no defaults, so that the worker of any release can send them.
	templates, faults := mailing.ParseTemplates(l.subject, l.html, l.text)
	stored := mailing.Stored{
		Subject: "Olá, {{d2}}!", HTML: "<p>{{nome}} de {{d3}}{{uf}}{{d4}} {{Cidade}} {{email}}</p>", Text: "{{d1}} {{d2}}",
		Fields: []string{"d2", "d3", "uf", "d4", "Cidade", "d1"},
	}
	plain, err := templates.Stored(nil)
	if diff := cmp.Diff(stored, plain); diff != "" || len(faults) > 0 || err != nil {
		t.Error(faults, err, diff)
	}
	if diff := cmp.Diff(stored.Fields, validator.Fields()); diff != "" {
		t.Error(diff)
	}
	_, strict := resultsWith(t, l, file, func(p *mailing.ValidatorParams) { p.RejectEmpty = true })
	if diff := cmp.Diff([]string{"2 a@example.com", "3 Nome EMPTY_FIELD", "4 Nome EMPTY_FIELD", "5 Cidade EMPTY_FIELD"}, strict); diff != "" {
		t.Error(diff)
	}
}

// A row with an empty subject or body is rejected.
func TestValidator_EmptyBody(t *testing.T) {
	t.Parallel()
	got := results(t, templateSet{"{{assunto}}", "<p>{{corpo}}</p>", ""}, "email;assunto;corpo\na@example.com;x;y\nb@example.com; ;y\nc@example.com;x;\nd@example.com;x;\u200b\n")
	if diff := cmp.Diff([]string{"2 a@example.com", "3 SUBJECT_LENGTH", "4 EMPTY_BODY", "5 EMPTY_BODY"}, got); diff != "" {
		t.Error(diff)
	}
}

// Line breaks become spaces in the subject; the body keeps them.
func TestValidator_LineBreaksInCells(t *testing.T) {
	t.Parallel()
	reading, validator, _, _ := openedFile(t, templateSet{"{{nome}}: {{oferta}}", "<p>{{endereço}}</p>", "{{endereço}}"},
		"Nome;E-mail;Razão social;ID externo;oferta;endereço\n\"Ana\r\n Maria\";a@example.com;\"Acme\tLtda\";\"C\n\n1\";\"um\u2028dois\r\n\ntrês\";\"Rua A\r\nRecife\"\n")
	for line, err := range mailing.Lines(reading, validator) {
		if err != nil || line.Entry == nil {
			t.Fatal(err, line.Reject)
		}
		e := line.Entry
		if diff := cmp.Diff([]string{"Ana Maria", "Acme Ltda", "C 1", "um dois três", "Rua A\nRecife"}, append([]string{e.Nome, e.RazaoSocial, e.ExternalID}, e.Fields...)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestFirstValid(t *testing.T) {
	t.Parallel()
	l := templateSet{"{{nome}}", `<p>{{nome}}</p><a href="{{unsubscribe_url}}">sair</a>`, "{{email}} {{token}} {{unsubscribe_url}}"}
	reading, validator, _, _ := openedFile(t, l, "email;nome\n;x\nx@mailinator.com;y\nana@example.com;<Ana>\nbia@example.com;Bia\n")
	render, err := mailing.FirstValid(reading, validator)
	if err != nil {
		t.Fatal(err)
	}
	got, err := render("T", "https://gw.example/u/1")
	want := mailing.Rendered{
		Subject: "<Ana>", HTML: `<p>&lt;Ana&gt;</p><a href="https://gw.example/u/1">sair</a>`, Text: "ana@example.com T https://gw.example/u/1",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	reading, validator, _, _ = openedFile(t, l, "email;nome\n;x\n")
	if _, err := mailing.FirstValid(reading, validator); err == nil {
		t.Error("a file without a valid row yields one")
	}
	reading, validator, _, _ = openedFile(t, l, "email;nome\n"+strings.Repeat(";x\n", 10_000)+"ana@example.com;Ana\n")
	if _, err := mailing.FirstValid(reading, validator); !errors.Is(err, mailing.ErrNoValidRow) {
		t.Errorf("a row after the first 10,000: %v", err)
	}
}

func TestTemplates_Faults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		templates templateSet
		header    string
		want      map[string]string
		words     []string
	}{
		"unknown":     {templateSet{"{{nom}}", "<p>{{cidade}} {{nome}}</p>", "{{outro}} {{token}}"}, "email;cidade", map[string]string{"subject": "UNKNOWN_MERGE_FIELD", "html": "UNKNOWN_MERGE_FIELD", "text": "UNKNOWN_MERGE_FIELD"}, []string{"{{nom}}", "{{nome}}", "{{outro}}", "email, cidade", "{{token}}"}},
		"tax ids":     {templateSet{"x", "<p>{{CPF}}</p>", ""}, "email;nome;cpf", map[string]string{"html": "FORBIDDEN_MERGE_FIELD"}, []string{"{{CPF}}"}},
		"tokens":      {templateSet{"{{email}} {{token}} {{unsubscribe_url}}", "<p>{{token}}</p>", "{{unsubscribe_url}}"}, "email", map[string]string{"subject": "FORBIDDEN_MERGE_FIELD"}, []string{"{{token}}, {{unsubscribe_url}}"}},
		"own column":  {templateSet{"x", "<p>{{token}}</p>", "{{token}}"}, "email;token", map[string]string{"file": "RESERVED_COLUMN"}, []string{"{{token}}"}},
		"unused":      {templateSet{"x", "<p>x</p>", ""}, "email;token", map[string]string{}, nil},
		"repeated":    {templateSet{"{{uf}}", "<p>{{Cidade}}</p>", ""}, "email;cidade;uf;CIDADE", map[string]string{"html": "DUPLICATE_COLUMN"}, []string{"{{Cidade}}", `2 ("cidade")`, `4 ("CIDADE")`}},
		"not used":    {templateSet{"{{uf}}", "<p>x</p>", ""}, "email;cidade;uf;CIDADE", map[string]string{}, nil},
		"signs":       {templateSet{"{{Valor (R$)}}", "<p>{{Desconto %|0}}</p>", "{{Nº Pedido #}} {{pedido}} {{Dias:}}"}, "email;Valor (R$);Desconto %;Nº Pedido #;# Pedido;Dias:", map[string]string{}, nil},
		"known":       {templateSet{"{{NOME}}", "<p>{{e-mail}} {{Full name}}</p>", ""}, "email;nome completo", map[string]string{}, nil},
		"unquoted":    {templateSet{"{{a", "<p>{{a}}</p><a href={{a}}>x</a>", "{{#if}}"}, "email;a", map[string]string{"subject": "INVALID_TEMPLATE", "html": "INVALID_TEMPLATE", "text": "INVALID_TEMPLATE"}, []string{"line 1"}},
		"8 defaults":  {templateSet{"{{A}}", variants("a", 6), "{{a}}"}, "email;a", map[string]string{}, nil},
		"9 defaults":  {templateSet{"{{A}}", variants("a", 7), "{{a}}"}, "email;a", map[string]string{"text": "INVALID_TEMPLATE"}, []string{"{{a}}", "more than 8 different"}},
		"9 spellings": {templateSet{"x", "", "{{ab}}{{a b}}{{Ab}}{{aB}}{{AB}}{{a_b}}{{a-b}}{{A b}}{{a B}}"}, "email;ab", map[string]string{"text": "INVALID_TEMPLATE"}, nil},
		"long defaults": {
			templateSet{"x", "<p>{{a|" + strings.Repeat("é", 200) + "}}</p>", "{{b|" + strings.Repeat("Ж", 200) + "}}" + strings.Repeat("{{c|"+strings.Repeat("x", 200)+"}}", 20)},
			"email;a;b;c",
			map[string]string{},
			nil,
		},
		"too long defaults": {
			templateSet{"x", "", variants("a", 7, 200) + variants("b", 7, 200) + variants("c", 7, 200)},
			"email;a;b;c",
			map[string]string{"text": "INVALID_TEMPLATE"},
			[]string{"4096 bytes"},
		},
		"in a script": {templateSet{"x", "<script>{{a}}</script>", ""}, "email;a", map[string]string{"html": "INVALID_TEMPLATE"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inspector := csvfile.NewInspector()
			file := c.header + "\n"
			_, _ = inspector.Write([]byte(file))
			reader, err := csvfile.Open(strings.NewReader(file), inspector.Inspection(), csvfile.Options{})
			if err != nil {
				t.Fatal(err)
			}
			templates, faults := mailing.ParseTemplates(c.templates.subject, c.templates.html, c.templates.text)
			faults = append(faults, templates.CheckFields(reader.Header())...)
			got := map[string]string{}
			var messages strings.Builder
			for _, f := range faults {
				got[f.Field] = f.Code
				messages.WriteString(f.Message)
			}
			if !maps.Equal(c.want, got) {
				t.Errorf("%v", faults)
			}
			if missing := slices.DeleteFunc(c.words, func(w string) bool { return strings.Contains(messages.String(), w) }); len(missing) > 0 {
				t.Errorf("the messages do not contain %q: %s", missing, messages.String())
			}
		})
	}
}
