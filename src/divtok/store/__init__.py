"""The run folder: Parquet tables, a manifest and a lock, safe against crashes and second writers.

`run` is the entrance, `table` one folder of shards, `shards` which of them count, `shard_file` one
of them as checked bytes; `layout` and `columns` say what a row looks like, `schema` those of the
core tables; `lock` and `atomic` are how a file gets onto the disk. It knows records and errors
only: no stage, no model.

Nothing is imported here, so that `divtok.store.atomic` can be used without loading pyarrow.
"""
