//! A long column of numbers that is read repeatedly from its start: in RAM while it is short, then
//! in a nameless file, so the memory used does not grow with the trace.

use bytemuck::{Pod, Zeroable};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Mutex;

/// Numbers in a chunk: the unit of reads and writes.
pub(super) const CHUNK: usize = 64 * 1024;
/// Most bytes that stay in RAM.
pub(super) const RAM_BYTES_MAX: usize = 256 << 20;

/// The column.
#[derive(Debug)]
pub(super) struct Spool<T> {
    /// All numbers, or those that are not in the file yet.
    ram: Vec<T>,
    file: Option<Mutex<File>>,
    len: u64,
    ram_bytes_max: usize,
}

impl<T: Pod + Zeroable> Spool<T> {
    /// An empty column that keeps about this many bytes in RAM, and at least a chunk.
    pub(super) fn new(ram_bytes_max: usize) -> Self {
        Self {
            ram: Vec::new(),
            file: None,
            len: 0,
            ram_bytes_max,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn blocks(&self) -> u64 {
        self.len.div_ceil(CHUNK as u64)
    }

    pub(super) fn push(&mut self, value: T) -> io::Result<()> {
        self.ram.push(value);
        self.len += 1;
        let full = match self.file {
            Some(_) => self.ram.len() == CHUNK,
            None => size_of_val(&self.ram[..]) >= self.ram_bytes_max && self.ram.len() >= CHUNK,
        };
        if full { self.flush() } else { Ok(()) }
    }

    /// Appends the part in RAM to the file.
    fn flush(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self
                .file
                .insert(Mutex::new(tempfile::tempfile_in(folder())?)),
        };
        let file = file.get_mut().unwrap_or_else(|e| e.into_inner());
        file.write_all(bytemuck::cast_slice(&self.ram))?;
        self.ram = Vec::new();
        Ok(())
    }

    /// Completes the column: nothing is pushed after this.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        match self.file {
            Some(_) => self.flush(),
            None => Ok(()),
        }
    }

    /// A column as long as this one, to be filled by chunk in any order.
    pub(super) fn parallel<U: Pod + Zeroable>(&self) -> io::Result<Spool<U>> {
        let in_ram = self.len as usize * size_of::<U>() <= self.ram_bytes_max;
        Ok(Spool {
            ram: vec![U::zeroed(); if in_ram { self.len as usize } else { 0 }],
            file: match in_ram {
                true => None,
                false => Some(Mutex::new(tempfile::tempfile_in(folder())?)),
            },
            len: self.len,
            ram_bytes_max: self.ram_bytes_max,
        })
    }

    pub(super) fn put_block(&mut self, index: u64, values: &[T]) -> io::Result<()> {
        let at = index * CHUNK as u64;
        let Some(file) = &mut self.file else {
            self.ram[at as usize..at as usize + values.len()].copy_from_slice(values);
            return Ok(());
        };
        let file = file.get_mut().unwrap_or_else(|e| e.into_inner());
        file.seek(SeekFrom::Start(at * size_of::<T>() as u64))?;
        file.write_all(bytemuck::cast_slice(values))
    }

    /// Chunk `index`, read into `buffer` if it is not in RAM.
    pub(super) fn chunk<'a>(&'a self, index: u64, buffer: &'a mut Vec<T>) -> io::Result<&'a [T]> {
        let at = index * CHUNK as u64;
        let count = (self.len - at).min(CHUNK as u64) as usize;
        let Some(file) = &self.file else {
            return Ok(&self.ram[at as usize..at as usize + count]);
        };
        buffer.resize(count, T::zeroed());
        let mut file = file.lock().unwrap_or_else(|e| e.into_inner());
        file.seek(SeekFrom::Start(at * size_of::<T>() as u64))?;
        file.read_exact(bytemuck::cast_slice_mut(buffer))?;
        Ok(buffer)
    }
}

/// The folder of nameless files; `/var/tmp` as it is likely on a disk.
fn folder() -> PathBuf {
    let named = std::env::var_os("TMPDIR").map(PathBuf::from);
    let usual = PathBuf::from("/var/tmp");
    named.unwrap_or_else(|| match usual.is_dir() {
        true => usual,
        false => std::env::temp_dir(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_is_read_in_ram_and_in_a_file() {
        for ram_bytes_max in [0, usize::MAX] {
            let mut spool = Spool::new(ram_bytes_max);
            let count = 3 * CHUNK as u32 + 7;
            for value in 0..count {
                spool.push(value).expect("room on the disk");
            }
            spool.finish().expect("room on the disk");
            assert_eq!(spool.file.is_some(), ram_bytes_max == 0);
            let mut buffer = Vec::new();
            let mut all = Vec::new();
            for block in 0..spool.blocks() {
                all.extend_from_slice(spool.chunk(block, &mut buffer).expect("a block"));
            }
            assert!(all.into_iter().eq(0..count));
            let mut backwards = spool.parallel::<u64>().expect("room on the disk");
            let mut buffer = Vec::new();
            for block in (0..spool.blocks()).rev() {
                let values = spool.chunk(block, &mut buffer).expect("a block");
                let values: Vec<_> = values.iter().map(|&value| u64::from(value) << 1).collect();
                backwards.put_block(block, &values).expect("a block");
            }
            let mut buffer = Vec::new();
            let last = backwards.chunk(3, &mut buffer).expect("a block");
            assert_eq!(last.len(), 7);
            assert_eq!(last[6], u64::from(count - 1) << 1);
        }
    }
}
