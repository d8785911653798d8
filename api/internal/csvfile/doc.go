// Package csvfile reads the CSV files that people upload for mailings: what Excel in
// Portuguese saves (semicolons, Windows-1252), "Unicode text" (UTF-16 with tabs), files
// with a byte order mark, with a sep=; line, with quotes that nobody closed. It is
// read as a stream: memory does not depend on the file's size. The encoding is decided
// when all of the file was seen, and a file with text in two encodings is refused: the
// names of one of them would be garbled.
//
// An upload is read twice. An Inspector looks at it while it goes to storage and says
// what kind of file it is; a Reader then takes it apart row by row:
//
//	inspector := csvfile.NewInspector()
//	io.Copy(storage, io.TeeReader(upload, inspector))
//	reader, err := csvfile.Open(stored, inspector.Inspection(), csvfile.Options{})
//	for {
//		row, err := reader.Next()
//		…                             // io.EOF; *RowError: this row only; *FileError: the file
//		row.Field(reader.Header().Email)
//	}
//
// What counts as what:
//
//   - A line ends with LF, CRLF or CR. Line numbers are those an editor shows: the
//     sep= line, the header and the lines inside of a quoted field count.
//   - A row whose fields are all empty ("", spaces, ";;;") is blank: it is skipped and
//     counts neither as a row nor as an error. Excel leaves such rows behind.
//   - Fields come without the white space around them (NBSP and zero-width characters
//     too). Line ends inside of a quoted field come as LF. Of the formula ="text" the text
//     comes.
//   - A quote opens a field only at its beginning: João "Zé" Silva stands as it is.
//     What follows a closing quote on the same line is taken literally ("Zé" Silva);
//     where the field also ends with a quote, the outer pair alone is dropped, as
//     exporters that forget to double quotes mean it ("Loja "X" Ltda" is Loja "X" Ltda).
//   - A row may be shorter than the header, because Excel leaves out trailing empty
//     cells: what is missing is empty, as long as the row reaches the email column. It
//     may be longer by empty fields. Anything else is WRONG_FIELD_COUNT.
//   - A quote that is not closed within the row limit, or whose closing quote stands
//     on another line and is followed by text (so that it opens a field there), is
//     UNCLOSED_QUOTE: the line it begins on is lost, reading goes on with the next.
//
// Package mailing uses it.
package csvfile
