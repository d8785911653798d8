package recipient

// MergeSQL is the CTE that merges imports, emails and entries of mailings into recipients. It reads the
// CTE updates. The SQL that uses it adds another condition (AND …) if needed, and the closing
// parenthesis. The conditions below occur in the text with their names as comments.
const MergeSQL = `-- merged merges the CTE updates into recipients, per field. It locks recipients by primary key, in id order. updates has
-- the columns recipient_id, company_id, id, external_id, cpf_cnpj_hash, cpf_cnpj_enc, razao_social, nome, email,
-- states_email.
--
-- Updates arrive in any order. Their ids are UUIDv7 and sort by time of acceptance. Per field the newest update wins, and an
-- older one fills what is empty. NULL says nothing about a field. An address without states_email only fills a new row. A
-- deletion voids the updates that were accepted before it, and the first update after it starts a new recipient, which has
-- none of the deleted one's fields. A batch may hold updates from before and after a deletion.
--
-- Hash and encrypted number are one field, and the hash decides which update wins. An update may have the hash alone: then
-- the known encrypted number stays if it belongs to the same hash, and an older update may still fill it.
--
-- An update that changes nothing is not written, unless it is newer: its id must win over an older, different update that
-- may still arrive.
merged AS (
    INSERT INTO recipients (id, company_id, intake_id, merged_by, external_id, external_id_by, cpf_cnpj_hash, cpf_cnpj_by, cpf_cnpj_enc, cpf_cnpj_enc_by,
                            razao_social, razao_social_by, nome, nome_by, email)
    SELECT recipient_id, company_id, address_by, address_by, external_id, external_id_by, cpf_cnpj_hash, cpf_cnpj_by,
           CASE WHEN hash_of_enc = cpf_cnpj_hash THEN cpf_cnpj_enc END, cpf_cnpj_enc_by, razao_social, razao_social_by, nome, nome_by, email
    FROM (
        SELECT recipient_id, company_id,
               first_present(external_id) AS external_id, first_present(id) FILTER (WHERE external_id IS NOT NULL) AS external_id_by,
               first_present(cpf_cnpj_hash) AS cpf_cnpj_hash, first_present(id) FILTER (WHERE cpf_cnpj_hash IS NOT NULL) AS cpf_cnpj_by,
               first_present(cpf_cnpj_enc) FILTER (WHERE cpf_cnpj_hash IS NOT NULL) AS cpf_cnpj_enc,
               first_present(id) FILTER (WHERE cpf_cnpj_hash IS NOT NULL AND cpf_cnpj_enc IS NOT NULL) AS cpf_cnpj_enc_by,
               first_present(cpf_cnpj_hash) FILTER (WHERE cpf_cnpj_enc IS NOT NULL) AS hash_of_enc,
               first_present(razao_social) AS razao_social, first_present(id) FILTER (WHERE razao_social IS NOT NULL) AS razao_social_by,
               first_present(nome) AS nome, first_present(id) FILTER (WHERE nome IS NOT NULL) AS nome_by,
               coalesce(first_present(email) FILTER (WHERE states_email), first_present(email)) AS email,
               coalesce(first_present(id) FILTER (WHERE states_email), ` + noUpdate + `) AS address_by
        FROM (SELECT * FROM updates ORDER BY recipient_id, id DESC) newest_first
        GROUP BY recipient_id, company_id
    ) said
    ORDER BY recipient_id
    ON CONFLICT (id) DO UPDATE SET
        intake_id = CASE WHEN ` + newAddress + ` THEN excluded.intake_id ELSE coalesce(recipients.intake_id, ` + noUpdate + `) END,
        merged_by = CASE WHEN ` + newAddress + ` THEN excluded.intake_id ELSE coalesce(recipients.intake_id, ` + noUpdate + `) END,
        external_id = CASE WHEN ` + newExternalID + ` THEN excluded.external_id WHEN ` + alive + ` THEN recipients.external_id END,
        external_id_by = CASE WHEN ` + newExternalID + ` THEN excluded.external_id_by WHEN ` + mergedBefore + ` THEN recipients.external_id_by ELSE recipients.intake_id END,
        cpf_cnpj_hash = CASE WHEN ` + newNumber + ` THEN excluded.cpf_cnpj_hash WHEN ` + alive + ` THEN recipients.cpf_cnpj_hash END,
        cpf_cnpj_enc = CASE WHEN ` + newEncrypted + ` THEN excluded.cpf_cnpj_enc WHEN ` + keptEncrypted + ` THEN recipients.cpf_cnpj_enc END,
        cpf_cnpj_enc_by = CASE WHEN ` + newEncrypted + ` THEN excluded.cpf_cnpj_enc_by WHEN ` + keptEncrypted + ` THEN recipients.cpf_cnpj_enc_by END,
        cpf_cnpj_by = CASE WHEN ` + newNumber + ` THEN excluded.cpf_cnpj_by WHEN ` + mergedBefore + ` THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END,
        razao_social = CASE WHEN ` + newRazaoSocial + ` THEN excluded.razao_social WHEN ` + alive + ` THEN recipients.razao_social END,
        razao_social_by = CASE WHEN ` + newRazaoSocial + ` THEN excluded.razao_social_by WHEN ` + mergedBefore + ` THEN recipients.razao_social_by ELSE recipients.intake_id END,
        nome = CASE WHEN ` + newNome + ` THEN excluded.nome WHEN ` + alive + ` THEN recipients.nome END,
        nome_by = CASE WHEN ` + newNome + ` THEN excluded.nome_by WHEN ` + mergedBefore + ` THEN recipients.nome_by ELSE recipients.intake_id END,
        email = CASE WHEN ` + newAddress + ` THEN excluded.email WHEN ` + alive + ` THEN recipients.email ELSE ` + newestAddress + ` END,
        deletion_id = greatest(recipients.deletion_id, ` + tombstone + ` END),
        deleted_at = NULL,
        updated_at = now()
    WHERE recipients.company_id = excluded.company_id
      AND (` + newAddress + ` OR ` + newExternalID + ` OR ` + newNumber + ` OR ` + missingEncrypted + ` OR ` + newRazaoSocial + ` OR ` + newNome + `)`

// The conditions of MergeSQL. recipients is the current row, excluded the row of the batch. A field
// that the batch does not mention has no id in excluded, and is not new.
const (
	// noUpdate is older than every update.
	noUpdate = `'00000000-0000-0000-0000-000000000000'::uuid`
	alive    = `recipients.deleted_at IS NULL`
	// mergedBefore: the columns …_by belong to the row's last write. They do not if a program of the
	// previous release, which leaves them unchanged, has written the row since.
	mergedBefore = `recipients.merged_by = recipients.intake_id`
	// tombstone is the last update that a deleted row makes void. A program of the previous
	// release stores only the time of the deletion and no id.
	tombstone = `CASE WHEN recipients.deleted_at IS NOT NULL THEN greatest(recipients.intake_id, first_id_at(recipients.deleted_at))`
	// newerThan is followed by the ELSE branch for the row's field, and END.
	newerThan = ` > greatest(` + noUpdate + `, recipients.deletion_id, ` + tombstone

	newAddress     = `/* newAddress */ excluded.intake_id` + newerThan + ` ELSE recipients.intake_id END)`
	newExternalID  = `/* newExternalID */ coalesce(excluded.external_id_by` + newerThan + ` WHEN recipients.external_id IS NULL THEN NULL WHEN ` + mergedBefore + ` THEN recipients.external_id_by ELSE recipients.intake_id END), false)`
	newNumber      = `/* newNumber */ coalesce(excluded.cpf_cnpj_by` + newerThan + ` WHEN recipients.cpf_cnpj_hash IS NULL THEN NULL WHEN ` + mergedBefore + ` THEN recipients.cpf_cnpj_by ELSE recipients.intake_id END), false)`
	newRazaoSocial = `/* newRazaoSocial */ coalesce(excluded.razao_social_by` + newerThan + ` WHEN recipients.razao_social IS NULL THEN NULL WHEN ` + mergedBefore + ` THEN recipients.razao_social_by ELSE recipients.intake_id END), false)`
	newNome        = `/* newNome */ coalesce(excluded.nome_by` + newerThan + ` WHEN recipients.nome IS NULL THEN NULL WHEN ` + mergedBefore + ` THEN recipients.nome_by ELSE recipients.intake_id END), false)`
	// newestAddress is that of the batch's newest update. The row of a deleted person without a newAddress gets it:
	// excluded.email may be one that the deletion makes void.
	newestAddress = `(SELECT s.email FROM updates s WHERE s.recipient_id = recipients.id ORDER BY s.id DESC LIMIT 1)`
	sameNumber    = alive + ` AND recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash`
	// notVoid: the encrypted number is newer than a deletion of the person. In one batch, the hash
	// may be newer than the deletion and the encrypted number older.
	notVoid = `excluded.cpf_cnpj_enc IS NOT NULL AND excluded.cpf_cnpj_enc_by` + newerThan + ` END)`
	// missingEncrypted: the row has the hash without an encrypted number, and the batch has that number.
	missingEncrypted = `/* missingEncrypted */ coalesce(` + sameNumber + ` AND recipients.cpf_cnpj_enc IS NULL AND ` + notVoid + `, false)`
	newEncrypted     = `/* newEncrypted */ (` + newNumber + ` AND ` + notVoid + ` OR ` + missingEncrypted + `)`
	keptEncrypted    = `/* keptEncrypted */ ` + alive + ` AND (NOT ` + newNumber + ` OR recipients.cpf_cnpj_hash = excluded.cpf_cnpj_hash)`
)
