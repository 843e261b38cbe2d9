"""The run folder: Parquet tables, a manifest and a lock, safe against crashes and second writers.

`run` is the entrance, `table` one folder of shards, `table_folder` which of them make it up,
`ledger` the list of them, `shards` their names, `shard_file` one of them as checked bytes;
`manifest` is what rows depend on and what made them, `verify` whether all is as it was written;
`layout` and `columns` say what a row looks like, `schema` those of the core tables; `lock`, `space`
and `atomic` are how a file gets onto the disk. It knows records and errors only: no stage and no
model.

Nothing is imported here, so that `divtok.store.atomic` can be used without loading pyarrow.
"""
