-- The bytes of stored files are counted as those of bodies are: triggers add the changes to quota_deltas. Until now each new
-- attachment summed the files of its company, under the lock of the company's quotas: with 300,000 files that took some 0.1 s.
--
-- A trigger moves these bytes from a deleted delta to the total, so a dispatcher of the previous release moves them too.

-- +goose Up

-- In this order: requests lock quota_totals first and stored_files last.
SET LOCAL lock_timeout = '3s';
ALTER TABLE quota_totals ADD COLUMN file_bytes bigint NOT NULL DEFAULT 0;
ALTER TABLE quota_deltas ADD COLUMN file_bytes bigint NOT NULL DEFAULT 0;

-- +goose StatementBegin
-- Counts files that were inserted or deleted. Their bytes never change.
CREATE FUNCTION email_gateway_count_files() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO quota_deltas (company_id, file_bytes)
    SELECT company_id, sum(bytes) * CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END FROM changed GROUP BY company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Adds the bytes of files in deleted deltas to the totals, which the statement that deletes the deltas has locked.
CREATE FUNCTION email_gateway_fold_files() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    UPDATE quota_totals t SET file_bytes = t.file_bytes + f.file_bytes
    FROM (SELECT company_id, sum(file_bytes) AS file_bytes FROM folded WHERE file_bytes <> 0 GROUP BY company_id) f WHERE t.company_id = f.company_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION email_gateway_count_files(), email_gateway_fold_files() FROM PUBLIC;
CREATE TRIGGER quota_deltas_files AFTER DELETE ON quota_deltas
    REFERENCING OLD TABLE AS folded FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_fold_files();

-- The triggers lock stored_files against writes until the end of the transaction: each file is counted here or by a trigger.
CREATE TRIGGER stored_files_count_added AFTER INSERT ON stored_files
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_files();
CREATE TRIGGER stored_files_count_gone AFTER DELETE ON stored_files
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION email_gateway_count_files();
INSERT INTO quota_deltas (company_id, file_bytes) SELECT company_id, sum(bytes) FROM stored_files GROUP BY company_id;

-- +goose StatementBegin
DO $$
DECLARE
    change record;
    is_now text := pg_get_functiondef('email_gateway_use(uuid, boolean)'::regprocedure);
BEGIN
    FOR change IN VALUES
        ('(SELECT coalesce(sum(f.bytes), 0)::bigint FROM stored_files f WHERE f.company_id = company)', 'n.file_bytes'),
        ('greatest(0, coalesce(t.body_bytes, 0) + d.body_bytes) AS body_bytes,',
         'greatest(0, coalesce(t.body_bytes, 0) + d.body_bytes) AS body_bytes, greatest(0, coalesce(t.file_bytes, 0) + d.file_bytes) AS file_bytes,'),
        ('coalesce(sum(d.body_bytes), 0)::bigint AS body_bytes,',
         'coalesce(sum(d.body_bytes), 0)::bigint AS body_bytes, coalesce(sum(d.file_bytes), 0)::bigint AS file_bytes,')
    LOOP
        IF strpos(is_now, change.column1) = 0 THEN
            RAISE EXCEPTION 'email_gateway_use is not the function that this migration knows';
        END IF;
        is_now := replace(is_now, change.column1, change.column2);
    END LOOP;
    EXECUTE is_now;
END
$$;
-- +goose StatementEnd

-- +goose Down

SET LOCAL lock_timeout = '3s';
-- +goose StatementBegin
DO $$
DECLARE
    change record;
    was text := pg_get_functiondef('email_gateway_use(uuid, boolean)'::regprocedure);
BEGIN
    FOR change IN VALUES
        (' greatest(0, coalesce(t.file_bytes, 0) + d.file_bytes) AS file_bytes,', ''),
        (' coalesce(sum(d.file_bytes), 0)::bigint AS file_bytes,', ''),
        ('n.file_bytes', '(SELECT coalesce(sum(f.bytes), 0)::bigint FROM stored_files f WHERE f.company_id = company)')
    LOOP
        was := replace(was, change.column1, change.column2);
    END LOOP;
    EXECUTE was;
END
$$;
-- +goose StatementEnd
DROP TRIGGER stored_files_count_gone ON stored_files;
DROP TRIGGER stored_files_count_added ON stored_files;
DROP TRIGGER quota_deltas_files ON quota_deltas;
DROP FUNCTION email_gateway_fold_files(), email_gateway_count_files();
ALTER TABLE quota_deltas DROP COLUMN file_bytes;
ALTER TABLE quota_totals DROP COLUMN file_bytes;
