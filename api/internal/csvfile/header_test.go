package csvfile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"email-gateway/api/internal/csvfile"
)

func TestHeader_Meaning(t *testing.T) {
	t.Parallel()
	type columns struct{ Email, Nome, CPF, CNPJ, CPFCNPJ, RazaoSocial, ExternalID int }
	none := columns{-1, -1, -1, -1, -1, -1, -1}
	with := func(change func(*columns)) columns { c := none; change(&c); return c }
	for header, want := range map[string]columns{
		"email":  with(func(c *columns) { c.Email = 0 }),
		"E-mail": with(func(c *columns) { c.Email = 0 }),
		"Name;E-mail 1 - Type;E-mail 1 - Value;E-mail 2 - Value":       with(func(c *columns) { c.Email, c.Nome = 2, 0 }),
		"First Name;E-mail 1 - Label;E-mail 1 - Value;Phone 1 - Value": with(func(c *columns) { c.Email, c.Nome = 2, 0 }),
		"contact_email;Email 1":            with(func(c *columns) { c.Email = 0 }),
		"Email 1;Email 2":                  with(func(c *columns) { c.Email = 0 }),
		"E_MAIL:":                          with(func(c *columns) { c.Email = 0 }),
		"\u00a0 e\u2011mail\u00a0*":        with(func(c *columns) { c.Email = 0 }),
		"Endereço de e-mail":               with(func(c *columns) { c.Email = 0 }),
		"Endereço\u00a0de\u00a0E-mail":     with(func(c *columns) { c.Email = 0 }),
		"Endereco Eletronico":              with(func(c *columns) { c.Email = 0 }),
		"Email Address;First Name":         with(func(c *columns) { c.Email, c.Nome = 0, 1 }),
		"Correio Eletrónico":               with(func(c *columns) { c.Email = 0 }),
		"cidade;email":                     with(func(c *columns) { c.Email = 1 }),
		"e-mail address;email":             with(func(c *columns) { c.Email = 1 }),
		"correio;E-mail;nome":              with(func(c *columns) { c.Email, c.Nome = 1, 2 }),
		"email;NOME COMPLETO":              with(func(c *columns) { c.Email, c.Nome = 0, 1 }),
		"email;full_name;nome":             with(func(c *columns) { c.Email, c.Nome = 0, 2 }),
		"email;cpf;cnpj":                   with(func(c *columns) { c.Email, c.CPF, c.CNPJ = 0, 1, 2 }),
		"email;cpf_cnpj":                   with(func(c *columns) { c.Email, c.CPFCNPJ = 0, 1 }),
		"email;CPF/CNPJ":                   with(func(c *columns) { c.Email, c.CPFCNPJ = 0, 1 }),
		"email;cpfCnpj":                    with(func(c *columns) { c.Email, c.CPFCNPJ = 0, 1 }),
		"email;CPF / CNPJ":                 with(func(c *columns) { c.Email, c.CPFCNPJ = 0, 1 }),
		"email;Documento":                  with(func(c *columns) { c.Email, c.CPFCNPJ = 0, 1 }),
		"email;Nº do documento":            with(func(c *columns) { c.Email, c.CPFCNPJ = 0, 1 }),
		"email;documento;tax_id":           with(func(c *columns) { c.Email, c.CPFCNPJ = 0, 2 }),
		"email;Razão Social":               with(func(c *columns) { c.Email, c.RazaoSocial = 0, 1 }),
		"email;RAZA\u0303O-SOCIAL;empresa": with(func(c *columns) { c.Email, c.RazaoSocial = 0, 1 }),
		"email;empresa":                    with(func(c *columns) { c.Email, c.RazaoSocial = 0, 1 }),
		"email;externalId":                 with(func(c *columns) { c.Email, c.ExternalID = 0, 1 }),
		"#email;# Pedido;#;#":              with(func(c *columns) { c.Email = 0 }),
		"email;ID externo":                 with(func(c *columns) { c.Email, c.ExternalID = 0, 1 }),
		"email;Código do Cliente":          with(func(c *columns) { c.Email, c.ExternalID = 0, 1 }),
		"email;customer_id":                with(func(c *columns) { c.Email, c.ExternalID = 0, 1 }),
		";email;;nome":                     with(func(c *columns) { c.Email, c.Nome = 1, 3 }),
		"nome social;email":                with(func(c *columns) { c.Email = 1 }),
	} {
		r, err := open(t, header+"\n", csvfile.Options{Delimiter: ';'})
		if err != nil {
			t.Errorf("%s: %v", header, err)
			continue
		}
		h := r.Header()
		got := columns{h.Email, h.Nome, h.CPF, h.CNPJ, h.CPFCNPJ, h.RazaoSocial, h.ExternalID}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", header, diff)
		}
	}
}

func TestHeader_Index(t *testing.T) {
	t.Parallel()
	r, err := open(t, "E-mail;Full name;Razão Social;Cidade ;CPF do titular;Documento;;Desconto (%);Desconto (R$)\n", csvfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := r.Header()
	for name, want := range map[string]int{
		"email": 0, "E-MAIL": 0, "endereço de e-mail": 0, "nome": 1, "name": 1, "full_name": 1, "razão social": 2, "Razao_Social": 2, "RAZAO-SOCIAL": 2,
		"empresa": 2, "cidade": 3, " Cidade\u00a0": 3, "cpf do titular": 4, "documento": 5, "cpfCnpj": 5, "desconto (%)": 7, "desconto(r$)": 8,
		"cpf": -1, "estado": -1, "": -1, "-": -1,
	} {
		if got := h.Index(name); got != want {
			t.Errorf("Index(%q) = %d, want %d", name, got, want)
		}
	}
	for column, want := range map[int]bool{-1: false, 0: false, 1: false, 2: false, 4: true, 5: true, 6: false, 99: false} {
		if got := h.IsTaxID(column); got != want {
			t.Errorf("IsTaxID(%d) = %v, want %v", column, got, want)
		}
	}
	want := []string{"E-mail", "Full name", "Razão Social", "Cidade", "CPF do titular", "Documento", "", "Desconto (%)", "Desconto (R$)"}
	if diff := cmp.Diff(want, h.Columns(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Columns: (-want +got)\n%s", diff)
	}
}

func TestHeader_OtherDocuments(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]struct{ otherDocument, isTaxID bool }{
		"email;Documento":          {false, true},
		"email;Documento;cpf":      {true, true},
		"email;Document No.;cpf":   {false, false},
		"email;Nº documento;cnpj":  {true, true},
		"email;tax id;cpf":         {false, true},
		"email;cpf/cnpj;cpf":       {false, true},
		"email;documento;cpf/cnpj": {false, true},
		"email;nome;cpf":           {false, false},
	} {
		r, err := open(t, header+"\n", csvfile.Options{Delimiter: ';'})
		if err != nil {
			t.Errorf("%s: %v", header, err)
			continue
		}
		if h := r.Header(); h.MayBeOtherDocument() != want.otherDocument || h.IsTaxID(1) != want.isTaxID {
			t.Errorf("%s: %v, %v, want %v", header, h.MayBeOtherDocument(), h.IsTaxID(1), want)
		}
	}
}

// Only the use of a name that several columns have is a fault.
func TestHeader_RepeatedNames(t *testing.T) {
	t.Parallel()
	r, err := open(t, "Texto breve;email;Endereço;nome;Endereco;Texto breve;TEXTO-BREVE;name\na;a@b.co;b;Zé;c;d;e;f\n", csvfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := r.Header()
	for name, want := range map[string]string{
		"email": "", "nome": "", "name": "", "cidade": "",
		"texto breve": `columns 1 ("Texto breve") and 6 ("Texto breve") have the same name`, "endereço": `columns 3 ("Endereço") and 5 ("Endereco")`,
	} {
		if err := h.CheckUnique(h.Index(name)); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if diff := cmp.Diff([]string{"2: a|a@b.co|b|Zé|c|d|e|f"}, readAll(r)); diff != "" || h.Email != 1 || h.Nome != 3 {
		t.Errorf("Email %d, Nome %d; (-want +got)\n%s", h.Email, h.Nome, diff)
	}
}

// The # at the beginning of a name is left out only if no other column has the rest as its name.
func TestHeader_NumberSign(t *testing.T) {
	t.Parallel()
	r, err := open(t, "#email;# Pedido;email;Pedido;#Nota;# nota;#Item\n", csvfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := r.Header()
	for name, want := range map[string]int{"email": 2, "pedido": 3, "item": 6, "nota": 4} {
		column := h.Index(name)
		if err := h.CheckUnique(column); column != want || (err != nil) != (name == "nota") {
			t.Errorf("%s: column %d, %v, want %d", name, column, err, want)
		}
	}
	if h.Email != 2 {
		t.Errorf("Email = %d", h.Email)
	}
}

func TestHeader_Refused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file  string
		want  string // code and line
		words []string
	}{
		"only blank lines":    {"\n \n;;\n", "EMPTY_FILE", nil},
		"only a mark":         {"\ufeff", "EMPTY_FILE", nil},
		"only a sep line":     {"sep=;\n", "EMPTY_FILE", nil},
		"no email":            {"\nnome;telefone\nZé;81\n", "line 2: NO_EMAIL_COLUMN", []string{`"nome"`, `"telefone"`}},
		"another delimiter":   {"nome:email\n", "line 1: NO_EMAIL_COLUMN", []string{`"nome:email"`}},
		"data in place":       {"Zé;ze@exemplo.com.br\nBia;bia@exemplo.com.br\n", "line 1: NO_HEADER", []string{"column names"}},
		"numbers in place":    {"52998224725;1\n", "line 1: NO_HEADER", nil},
		"quote in the header": {"sep=;\n\"nome;email\nZé;a@b.co\n", "line 2: NO_HEADER", []string{"quote"}},
		"name twice":          {"email;Nome;x;nome\n", "line 1: DUPLICATE_COLUMN", []string{`2 ("Nome")`, `4 ("nome")`}},
		"same name in disguise": {
			"email;Razão Social;razao_social\n", "line 1: DUPLICATE_COLUMN", []string{`"Razão Social"`, `"razao_social"`},
		},
		"another email name twice": {"Correio;nome;correio\n", "line 1: DUPLICATE_COLUMN", []string{`1 ("Correio")`, `3 ("correio")`}},
		"email twice":              {"email;e-mail\n", "line 1: DUPLICATE_COLUMN", []string{`1 ("email")`, `2 ("e-mail")`}},
		"two meant for email":      {"correio;nome;Email address\n", "line 1: DUPLICATE_COLUMN", []string{`"correio"`, `"Email address"`}},
		"too many columns":         {"email" + strings.Repeat(";x", 200) + "\n", "line 1: TOO_MANY_COLUMNS", []string{"201", "200"}},
		"a steady delimiter": {
			"nome,idade; anos\nZé,1\nBia,2\n", "line 1: NO_EMAIL_COLUMN", []string{`"nome", "idade; anos"`},
		},
		"a line without end": {"email;" + strings.Repeat("x", 200_000) + "\na@b.co\n", "line 1: LINE_TOO_LONG", []string{"65536"}},
		"a name without end": {strings.Repeat("ç", 100) + ";x\n", "line 1: NO_EMAIL_COLUMN", []string{"ççç…\""}},
		"many names":         {strings.Repeat("a,b,c,d,e,f,g,h,i,j,kk,ll\n", 2), "line 1: NO_EMAIL_COLUMN", []string{`"j", …`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, tt.file, csvfile.Options{})
			if err == nil || ending(err) != tt.want {
				t.Fatalf("Open = %v, want %s", err, tt.want)
			}
			for _, part := range tt.words {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not contain %s", err, part)
				}
			}
			if strings.Contains(err.Error(), "ze@exemplo") || strings.Contains(err.Error(), "52998224725") {
				t.Errorf("error %q contains a recipient's data", err)
			}
		})
	}
}

// Excel pads rows with empty cells; columns without a name are ignored.
func TestHeader_EmptyToTheRight(t *testing.T) {
	t.Parallel()
	r, err := open(t, "email;nome"+strings.Repeat(";", 1000)+"\na@b.co;Zé"+strings.Repeat(";", 1000)+"\n", csvfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"2: a@b.co|Zé"}, readAll(r)); diff != "" {
		t.Error(diff)
	}
}
