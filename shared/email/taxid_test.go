package email_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"email-gateway/shared/email"
)

func TestParseTaxID_Valid(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"CPF, punctuated", "529.982.247-25", "52998224725"},
		{"CPF, bare", "52998224725", "52998224725"},
		{"CPF, spaces around", " 529 982 247 25 ", "52998224725"},
		{"CPF with leading zeros", "000.000.001-91", "00000000191"},
		{"CPF whose first check digit is 10, so 0", "987.654.321-00", "98765432100"},
		{"CNPJ, punctuated", "11.222.333/0001-81", "11222333000181"},
		{"CNPJ, bare", "11222333000181", "11222333000181"},
		{"CNPJ of Banco do Brasil", "00.000.000/0001-91", "00000000000191"},
		{"alphanumeric CNPJ ending in zero", "12ABS345000170", "12ABS345000170"},
		{"alphanumeric CNPJ, the tax office's example", "12.ABC.345/01DE-35", "12ABC34501DE35"},
		{"the same in lower case", "12.abc.345/01de-35", "12ABC34501DE35"},
		{"CPF behind an apostrophe", "'00000000191", "00000000191"},
		{"CNPJ behind a typographic apostrophe", "’11.222.333/0001-81", "11222333000181"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := email.ParseTaxID(tt.text)
			if err != nil || got != tt.want {
				t.Errorf("ParseTaxID(%q) = %q, %v; want %q", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestParseTaxID_Invalid(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text string }{
		{"empty", ""},
		{"punctuation only", "..-/"},
		{"apostrophe only", "'"},
		{"CPF with an apostrophe inside", "529'98224725"},
		{"CPF, first check digit wrong", "529.982.247-35"},
		{"CPF, second check digit wrong", "529.982.247-26"},
		{"CPF, digits swapped", "259.982.247-25"},
		{"CPF that lost its leading zero", "0000000191"},
		{"CPF with a letter", "52998224A25"},
		{"CPF of one digit over and over", "111.111.111-11"},
		{"CPF of zeros", "00000000000"},
		{"CNPJ, first check digit wrong", "11.222.333/0001-91"},
		{"CNPJ, second check digit wrong", "11.222.333/0001-82"},
		{"CNPJ of one digit over and over", "00000000000000"},
		{"alphanumeric CNPJ, one letter changed", "12.ABD.345/01DE-35"},
		{"alphanumeric CNPJ with letters as check digits", "12ABC34501DEAB"},
		{"12 digits", "123456789012"},
		{"15 digits", "112223330001810"},
		{"an email address", "ana@example.com"},
		{"Arabic digits", "٥٢٩٩٨٢٢٤٧٢٥"},
		{"letter outside ASCII", "12ÁBC34501DE3"},
		{"letter whose capital is in ASCII", "12ABſ345000170"}, // 12ABS345000170 is one
		{"invalid UTF-8", "52998224\xff25"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, err := email.ParseTaxID(tt.text); !errors.Is(err, email.ErrTaxID) || got != "" {
				t.Errorf("ParseTaxID(%q) = %q, %v", tt.text, got, err)
			}
		})
	}
}

// One wrong digit anywhere in a CPF is always detected: its weights are all different from zero
// modulo 11.
func TestParseTaxID_OneWrongDigit(t *testing.T) {
	t.Parallel()
	for _, valid := range []string{"52998224725", "00000000191", "11222333000181"} {
		for i := range valid {
			for digit := byte('0'); digit <= '9'; digit++ {
				if digit == valid[i] {
					continue
				}
				wrong := valid[:i] + string(digit) + valid[i+1:]
				if _, err := email.ParseTaxID(wrong); err == nil {
					t.Errorf("%s with a wrong digit is accepted like %s", wrong, valid)
				}
			}
		}
	}
}

// A number and its punctuated form are the same number.
func TestParseTaxID_Punctuation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bare := rapid.SampledFrom([]string{"52998224725", "11222333000181", "12ABC34501DE35"}).Draw(t, "bare")
		var written strings.Builder
		for _, r := range bare {
			written.WriteRune(r)
			written.WriteString(rapid.SampledFrom([]string{"", ".", "-", "/", " "}).Draw(t, "mark"))
		}
		if got, err := email.ParseTaxID(written.String()); err != nil || got != bare {
			t.Fatalf("ParseTaxID(%q) = %q, %v", written.String(), got, err)
		}
	})
}

func TestHashTaxID(t *testing.T) {
	t.Parallel()
	const bare = "52998224725"
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(bare)))
	if got := email.HashTaxID(bare, nil); got != sum {
		t.Errorf("without a key: %s, want the plain SHA-256 %s", got, sum)
	}
	key := []byte("a key of the gateway's own")
	keyed := email.HashTaxID(bare, key)
	if keyed == sum || !email.IsSHA256(keyed) {
		t.Errorf("with a key: %s", keyed)
	}
	if got := email.KeyTaxIDHash(sum, key); got != keyed {
		t.Errorf("a hash given by a tenant is hashed to %s, want %s", got, keyed)
	}
	if email.HashTaxID(bare, []byte("another")) == keyed {
		t.Error("two keys give the same hash")
	}
	if got := email.KeyTaxIDHash("not hex", key); got != "" {
		t.Errorf("a malformed hash gives %q", got)
	}
}

func FuzzParseTaxID(f *testing.F) {
	for _, seed := range []string{"529.982.247-25", "12.ABC.345/01DE-35", "", "ß", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bare, err := email.ParseTaxID(text)
		if err != nil {
			return
		}
		if again, err := email.ParseTaxID(bare); err != nil || again != bare {
			t.Errorf("%q is read as %q, and that as %q, %v", text, bare, again, err)
		}
		if _, err := hex.DecodeString(email.HashTaxID(bare, nil)); err != nil || strings.ToUpper(bare) != bare {
			t.Errorf("%q is read as %q", text, bare)
		}
	})
}

// Numbers as written by word processors and web pages.
func TestParseTaxID_TypographicPunctuation(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"529.982.247\u201025", "529.982.247\u201125", "529.982.247\u201225", "529.982.247\u201325", "529.982.247\u201425", "529.982.247\u221225", "529.982.247\ufe6325", "529.982.247\uff0d25",
		"\u00a0529.982.247-25\u200b", "529\u00a0982\u202f247\u00a025", "529\u00b7982\u00b7247\u00ad25", "\ufeff52998224725",
	} {
		if got, err := email.ParseTaxID(text); got != "52998224725" || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if masked := email.MaskText("cpf " + text + "."); strings.Contains(masked, "25") && !strings.Contains(text, " ") && !strings.ContainsAny(text, "\u00a0\u202f") {
			t.Errorf("%q is shown: %q", text, masked)
		}
	}
	if got, err := email.ParseTaxID("11.222.333\u20440001\u201181"); got != "11222333000181" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"529.982.247\n25", "529.982.247_25", "529,982,247-25", "529.982.247\u202825"} {
		if got, err := email.ParseTaxID(text); err == nil {
			t.Errorf("%q is taken as %q", text, got)
		}
	}
}
