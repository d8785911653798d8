// Package csvfile reads CSV files that people upload for mailings: as saved by the Portuguese Excel
// (semicolons, Windows-1252), as "Unicode text" (UTF-16 with tabs), with a byte order mark, with a
// sep=; line, with unclosed quotes. Files are streamed: memory use does not depend on their size.
// The encoding is decided after the whole file was seen, and a file with text in two encodings is
// rejected, because some of its names would be garbled.
//
// An upload is read twice. An Inspector examines it on its way to storage and detects its format; a
// Reader then parses it row by row:
//
//	inspector := csvfile.NewInspector()
//	io.Copy(storage, io.TeeReader(upload, inspector))
//	reader, err := csvfile.Open(stored, inspector.Inspection(), csvfile.Options{})
//	for {
//		row, err := reader.Next()
//		…                             // io.EOF; *RowError: only this row; *FileError: the file
//		row.Field(reader.Header().Email)
//	}
//
// Rules:
//
//   - A line ends with LF, CRLF or CR. Line numbers are those of an editor: the sep= line, the header
//     and the lines within a quoted field count.
//   - A row with only empty fields ("", spaces, ";;;") is blank: it is skipped and counts neither as
//     row nor as error. Excel leaves such rows behind.
//   - White space around fields is removed (NBSP and zero-width characters too). Line breaks within a
//     quoted field become LF. The formula ="text" becomes its text.
//   - The error value of a spreadsheet (#N/D, #REF!, #VALOR!) and MySQL's \N are an empty field.
//   - A quote opens a field only at its beginning: João "Zé" Silva is unchanged. Text after a closing
//     quote on the same line is taken literally ("Zé" Silva); if the field also ends with a quote, only
//     the outer pair is removed, as exporters that do not double quotes mean it ("Loja "X" Ltda" is
//     Loja "X" Ltda).
//   - A row may be shorter than the header, because Excel omits trailing empty cells: missing fields
//     are empty, as long as the row reaches the email column. It may have additional empty fields.
//     Otherwise it is a WRONG_FIELD_COUNT.
//   - A line that is longer than the limit is LINE_TOO_LONG, the header's for the whole file.
//   - A quote that is not closed within the row limit, or whose closing quote is on another line and
//     followed by text (so that it opens a field there), is an UNCLOSED_QUOTE: the line with the opening
//     quote is rejected, and reading continues with the next.
//   - A row with line breaks in quoted fields is rejected as one ROW_IN_QUOTES if one of its lines, with quotes taken
//     literally, has another address in the email column. If a quote is not closed, that line is a row of the file,
//     otherwise part of a list of addresses: it is reported, and is neither a recipient nor text of the other row. An
//     address behind the last line of a field is that of another column, if the row has as many fields as most rows
//     before it. A header with an address alone in a field of such a line is NO_HEADER.
//   - If a quote is not closed on a later line of such a row, the lines up to and including that one are a ROW_IN_QUOTES.
//   - The lines after an UNCLOSED_QUOTE may belong to the same cell, and an address among them is not a recipient: after an
//     UNCLOSED_QUOTE, a ROW_IN_QUOTES, a LINE_TOO_LONG with a quote, and a row with text behind a closing quote, a row is
//     accepted only if it has as many fields as most rows before, and at least two of several columns, until one has. If
//     there was no row before, it needs a field for each column of the header. Shorter ones are a WRONG_FIELD_COUNT.
//
// Package mailing uses it.
package csvfile
