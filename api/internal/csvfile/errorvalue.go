package csvfile

// errorValues are what spreadsheets write into a cell whose formula failed, in English and Portuguese, and the NULL of
// MySQL's exports. The text NULL is not one of them: it is a surname.
var errorValues = []string{
	`\N`,
	"#N/A", "#N/D", "#REF!", "#VALUE!", "#VALOR!", "#NAME?", "#NOME?", "#DIV/0!", "#NULL!", "#NULO!", "#NUM!", "#NÚM!", "#ERROR!", "#ERRO!",
	"#SPILL!", "#DESPEJAR!", "#CALC!", "#FIELD!", "#CAMPO!", "#GETTING_DATA", "#OBTENDO_DADOS",
}

// isErrorValue reports whether a cell contains nothing but the error of a spreadsheet or a NULL. Such a cell is empty.
func isErrorValue(text []byte) bool {
	if len(text) < 2 || text[0] != '#' && text[0] != '\\' {
		return false
	}
	for _, value := range errorValues {
		if string(text) == value {
			return true
		}
	}
	return false
}

// IsErrorValue reports whether the column is empty because its cell has the error of a spreadsheet or a NULL.
func (r Row) IsErrorValue(column int) bool {
	return column >= 0 && column < len(r.t.fields) && isErrorValue(r.t.text(column))
}
