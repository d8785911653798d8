package csvfile

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Common names of the columns with a meaning, in the form of Normalize. The first one is the
// canonical name; if a file has several, the earlier one in the list is used.
var (
	emailNames = []string{
		"email", "emails", "mail", "emailaddress", "enderecodeemail", "enderecoemail", "enderecoeletronico",
		"correioeletronico", "correioelectronico", "correio", "emaildocliente", "emailcliente", "emaildecontato",
		"emailcontato", "emailprincipal", "customeremail", "contactemail", "useremail", "primaryemail",
	}
	// numberedEmailNames are the names of a person's first address in Google Contacts and Outlook.
	// They are used if no column has a name of emailNames.
	numberedEmailNames = []string{"email1value", "email1valor", "email1address", "email1"}
	nomeNames          = []string{
		"nome", "nomecompleto", "name", "fullname", "nomedocliente", "nomecliente", "customername", "nomedocontato",
		"nomecontato", "contactname", "nomedodestinatario", "nomedestinatario", "destinatario", "recipientname", "primeironome", "firstname",
	}
	cpfNames = []string{
		"cpf", "numerodocpf", "numerocpf", "nodocpf", "nocpf", "cpfdocliente", "cpfcliente", "cpfnumber",
	}
	cnpjNames = []string{
		"cnpj", "numerodocnpj", "numerocnpj", "nodocnpj", "nocnpj", "cnpjdaempresa", "cnpjempresa", "cnpjdocliente", "cnpjcliente", "cnpjnumber",
	}
	cpfCNPJNames = []string{
		"cpfcnpj", "cpf/cnpj", "cnpjcpf", "cnpj/cpf", "cpfoucnpj", "cnpjoucpf", "cpfecnpj", "cpf(cnpj)", "cpf|cnpj", "cpf.cnpj",
		"taxid",
	}
	// documentNames are the names of a CPF or CNPJ that many files use for the number of another document
	// (an RG, an invoice). They are used if no column has a name of cpfCNPJNames.
	documentNames = []string{
		"documento", "document", "numerododocumento", "numerodocumento", "nodocumento", "nododocumento", "documentnumber",
	}
	razaoSocialNames = []string{
		"razaosocial", "companyname", "empresa", "company", "nomedaempresa", "nomeempresa", "legalname", "corporatename",
		"organizacao", "organization", "organisation",
	}
	externalIDNames = []string{
		"externalid", "idexterno", "codigoexterno", "codigodocliente", "codigocliente", "coddocliente", "codcliente", "iddocliente",
		"idcliente", "customerid", "clientid", "customercode", "clientcode",
	}
)

// Normalize removes insignificant differences from a column name: case, accents, spaces of any
// kind, dashes, underscores, invisible characters, a trailing colon or asterisk, and # at the beginning, because no field of a
// template can begin with it. "Razão Social", "razao_social" and "RAZÃO-SOCIAL:" all become razaosocial.
func Normalize(name string) string { return strings.TrimLeft(normalizeHash(name), "#") }

// normalizeHash is Normalize, except that it keeps # at the beginning.
func normalizeHash(name string) string {
	bare := strings.Map(func(r rune) rune {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Pd, unicode.Cf, unicode.Cc), isSpace(r), r == '_':
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFKD.String(name))
	return strings.TrimRight(bare, ":*")
}

func meansEmail(name string) bool {
	key := Normalize(name)
	return slices.Contains(emailNames, key) || slices.Contains(numberedEmailNames, key)
}

func isLetter(r rune) bool { return unicode.IsLetter(r) }
