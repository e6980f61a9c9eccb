//! RocksDB as the host's engine. One database per host, one write-ahead log, four column families for all clusters together.
//!
//! Values arrive sealed, so block compression would only burn time and is off. The state of every cluster lives in memory and the disk is
//! read when a group starts, so the block cache is small.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, ColumnFamilyDescriptor, CompactOptions, DB, DBCompressionType, DBRecoveryMode, Direction,
    FlushOptions, IteratorMode, Options, ReadOptions, WriteBatch, WriteBufferManager, WriteOptions,
};

use crate::engine::{Durability, Engine, EngineError, Family, Op, Pair, Space, Visit};

/// All memtables of all families together. Filling it makes RocksDB flush, so it also bounds what a restart replays from the log.
const WRITE_BUFFERS_BYTES: usize = 128 << 20;

/// One family's memtable: a quarter of the budget, so that one busy family cannot starve the rest.
const FAMILY_BUFFER_BYTES: usize = 32 << 20;

/// Old log files go once every family has flushed past them; a quiet family would otherwise pin them for ever.
const MAX_WAL_BYTES: u64 = 256 << 20;

/// Reads are rare (start of a group, a follower far behind), so a small cache is enough for index blocks.
const BLOCK_CACHE_BYTES: usize = 16 << 20;

/// A thousand clusters fit in a few hundred table files; the cap keeps a host's descriptor count predictable.
const MAX_OPEN_FILES: i32 = 512;

pub struct RocksEngine {
    db: DB,
    path: std::path::PathBuf,
}

impl RocksEngine {
    /// Opens or creates the database in `path`. Fails if anything but an unsynced end of the log is damaged.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
        options.set_paranoid_checks(true);
        options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager(WRITE_BUFFERS_BYTES, false));
        options.set_max_total_wal_size(MAX_WAL_BYTES);
        options.set_max_open_files(MAX_OPEN_FILES);
        options.set_max_background_jobs(2);
        options.set_bytes_per_sync(1 << 20);
        options.set_keep_log_file_num(2);
        let cache = Cache::new_lru_cache(BLOCK_CACHE_BYTES);
        let families = Family::ALL.map(|family| {
            let mut table = BlockBasedOptions::default();
            table.set_block_cache(&cache);
            table.set_cache_index_and_filter_blocks(true);
            let mut options = Options::default();
            options.set_block_based_table_factory(&table);
            options.set_write_buffer_size(FAMILY_BUFFER_BYTES);
            options.set_compression_type(DBCompressionType::None);
            ColumnFamilyDescriptor::new(family.name(), options)
        });
        let db = DB::open_cf_descriptors(&options, path, families).map_err(|e| failed("open", e))?;
        Ok(Self { db, path: path.to_owned() })
    }

    fn family(&self, family: Family) -> std::sync::Arc<rocksdb::BoundColumnFamily<'_>> {
        self.db.cf_handle(family.name()).expect("every family was opened or created")
    }
}

fn failed(action: &'static str, error: rocksdb::Error) -> EngineError {
    EngineError { action, cause: error.to_string() }
}

impl Engine for RocksEngine {
    fn write(&self, ops: Vec<Op>, durability: Durability) -> Result<(), EngineError> {
        let families = Family::ALL.map(|family| self.family(family));
        let handle = |family: &Family| &families[*family as usize];
        let mut batch = WriteBatch::default();
        for op in &ops {
            match op {
                Op::Put { family, key, value } => batch.put_cf(handle(family), key, value),
                Op::Delete { family, key } => batch.delete_cf(handle(family), key),
                Op::DeleteRange { family, from, to } => batch.delete_range_cf(handle(family), from, to),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(durability == Durability::Synced);
        self.db.write_opt(batch, &options).map_err(|e| failed("write", e))
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.db.get_cf(&self.family(family), key).map_err(|e| failed("get", e))
    }

    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<(), EngineError> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to);
        let handle = self.family(family);
        for item in self.db.iterator_cf_opt(&handle, options, IteratorMode::From(from, Direction::Forward)) {
            let (key, value) = item.map_err(|e| failed("scan", e))?;
            if visit(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, family: Family, from: &[u8], to: &[u8]) -> Result<Option<Pair>, EngineError> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(from);
        options.set_iterate_upper_bound(to);
        let handle = self.family(family);
        match self.db.iterator_cf_opt(&handle, options, IteratorMode::End).next() {
            None => Ok(None),
            Some(item) => item.map(|(key, value)| Some((key.into_vec(), value.into_vec()))).map_err(|e| failed("last", e)),
        }
    }

    fn reclaim(&self, ranges: &[(Vec<u8>, Vec<u8>)]) -> Result<(), EngineError> {
        // Flushing every family makes the old log files obsolete, so they go as well.
        let mut flush = FlushOptions::default();
        flush.set_wait(true);
        for family in Family::ALL {
            self.db.flush_cf_opt(&self.family(family), &flush).map_err(|e| failed("flush", e))?;
        }
        let mut compact = CompactOptions::default();
        compact.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        compact.set_exclusive_manual_compaction(false);
        for family in Family::ALL {
            let handle = self.family(family);
            for (from, to) in ranges {
                self.db.delete_file_in_range_cf(&handle, from, to).map_err(|e| failed("delete files", e))?;
                self.db.compact_range_cf_opt(&handle, Some(from), Some(to), &compact);
            }
        }
        Ok(())
    }

    fn space(&self) -> Result<Space, EngineError> {
        let stat = rustix::fs::statvfs(&self.path).map_err(|e| EngineError { action: "statvfs", cause: e.to_string() })?;
        Ok(Space { total: stat.f_blocks * stat.f_frsize, free: stat.f_bavail * stat.f_frsize })
    }
}

impl Drop for RocksEngine {
    fn drop(&mut self) {
        self.db.cancel_all_background_work(true);
    }
}
