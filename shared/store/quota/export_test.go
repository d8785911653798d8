package quota

const FoldQuotasSQL = foldQuotasSQL
