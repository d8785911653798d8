-- A search by tag goes by an index. An email has at most five tags, so there is a partial
-- index for each place in the array: it keeps the order of the ids, which a GIN index does
-- not, and an email without tags is in none of them.
--
-- Programs of the release before run beside this: they neither read nor avoid an index.

-- +goose NO TRANSACTION
-- +goose Up

-- CREATE INDEX CONCURRENTLY cannot be used on a partitioned table, nor in a loop over its
-- partitions. So one partition at a time is locked against writes while it is read: some
-- 100 ms for a million rows. Behind a backup the file gives up, and can be run again.
SET lock_timeout = '3s';

CREATE INDEX IF NOT EXISTS email_logs_tag1 ON ONLY email_logs (company_id, (tags[1]), outbox_id) WHERE tags[1] IS NOT NULL;
CREATE INDEX IF NOT EXISTS email_logs_tag2 ON ONLY email_logs (company_id, (tags[2]), outbox_id) WHERE tags[2] IS NOT NULL;
CREATE INDEX IF NOT EXISTS email_logs_tag3 ON ONLY email_logs (company_id, (tags[3]), outbox_id) WHERE tags[3] IS NOT NULL;
CREATE INDEX IF NOT EXISTS email_logs_tag4 ON ONLY email_logs (company_id, (tags[4]), outbox_id) WHERE tags[4] IS NOT NULL;
CREATE INDEX IF NOT EXISTS email_logs_tag5 ON ONLY email_logs (company_id, (tags[5]), outbox_id) WHERE tags[5] IS NOT NULL;

-- +goose StatementBegin
DO $$
DECLARE
    part record;
BEGIN
    FOR part IN
        SELECT i.inhrelid::regclass::text AS name, n AS place
        FROM pg_inherits i CROSS JOIN generate_series(1, 5) n WHERE i.inhparent = 'email_logs'::regclass ORDER BY 1, 2
    LOOP
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON %I (company_id, (tags[%s]), outbox_id) WHERE tags[%s] IS NOT NULL',
            part.name || '_tag' || part.place, part.name, part.place, part.place);
        EXECUTE format('ALTER INDEX %I ATTACH PARTITION %I', 'email_logs_tag' || part.place, part.name || '_tag' || part.place);
        COMMIT;
    END LOOP;
END
$$;
-- +goose StatementEnd

RESET lock_timeout;

-- +goose Down
DROP INDEX email_logs_tag1, email_logs_tag2, email_logs_tag3, email_logs_tag4, email_logs_tag5;
