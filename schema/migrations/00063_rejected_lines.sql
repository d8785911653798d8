-- What the reports about rejected lines lacked: the last line of a rejected row that has line breaks, of which only the first line was
-- reported, and the name of the address column, which the reports about invalid addresses called "email" whatever the file called it.
--
-- Programs of the previous release use neither column: rows that they reject have their first line only.

-- +goose Up

SET LOCAL lock_timeout = '3s';

ALTER TABLE mailing_rejects ADD COLUMN last_line integer; -- NULL = line_no
ALTER TABLE mailings ADD COLUMN email_column text; -- NULL = unknown

-- +goose Down

SET LOCAL lock_timeout = '3s';

ALTER TABLE mailings DROP COLUMN email_column;
ALTER TABLE mailing_rejects DROP COLUMN last_line;
