//! Debit-credit (section 7.2.3), after TPC-B: a transaction updates the 128-byte records of an
//! account, a teller and a branch, and appends a 64-byte record to the audit trail. As in the paper
//! the database does not grow with the throughput.

use gordon::{Array, Heap, Persist, Ref, Result, Tx, View};

/// Accounts of the database.
pub const ACCOUNTS: usize = 4096;
/// Tellers of the branch.
pub const TELLERS: usize = 10;
/// Records kept in the audit trail.
pub const TRAIL: usize = 1024;

/// A record of 128 bytes.
#[derive(Clone, Copy, Persist)]
struct Balance {
    balance: i64,
    filler: [u64; 15],
}

/// A record of 64 bytes.
#[derive(Clone, Copy, Persist)]
struct Audit {
    account: u64,
    teller: u64,
    branch: u64,
    delta: i64,
    number: u64,
    filler: [u64; 3],
}

#[derive(Clone, Copy, Persist)]
struct Database<'t> {
    accounts: Array<'t, Balance>,
    tellers: Array<'t, Balance>,
    branches: Array<'t, Balance>,
    trail: Array<'t, Option<Ref<'t, Audit>>>,
    count: Array<'t, u64>,
}

type Root<'t> = Ref<'t, Database<'t>>;

/// Makes an empty database the root.
///
/// # Errors
/// Those of a commit.
pub fn found(heap: &Heap) -> Result<()> {
    heap.update(|tx| {
        let records = |count| {
            tx.array(&vec![
                Balance {
                    balance: 0,
                    filler: [1; 15]
                };
                count
            ])
        };
        tx.set_root(tx.alloc(Database {
            accounts: records(ACCOUNTS),
            tellers: records(TELLERS),
            branches: records(1),
            trail: tx.array(&[None; TRAIL]),
            count: tx.array(&[0]),
        }));
        Ok(())
    })
}

fn add<'t>(tx: &Tx<'t>, records: Array<'t, Balance>, index: usize, delta: i64) {
    let mut record = records.get(index).expect("a record");
    record.balance += delta;
    records.set(tx, index, record);
}

/// One transaction on `account` through `teller`.
///
/// # Errors
/// Those of a commit.
pub fn transact(heap: &Heap, account: usize, teller: usize, delta: i64) -> Result<()> {
    heap.update(|tx| {
        let root = tx
            .root::<Root<'_>>()?
            .ok_or_else(|| gordon::Error::abort("no database"))?;
        let database = root.read();
        add(tx, database.accounts, account, delta);
        add(tx, database.tellers, teller, delta);
        add(tx, database.branches, 0, delta);
        let number = database.count.get(0).expect("a count");
        database.count.set(tx, 0, number + 1);
        let audit = Audit {
            account: account as u64,
            teller: teller as u64,
            branch: 0,
            delta,
            number,
            filler: [0; 3],
        };
        database
            .trail
            .set(tx, number as usize % TRAIL, Some(tx.alloc(audit)));
        Ok(())
    })
}

/// Checks that accounts, tellers and branch agree, and the end of the trail; returns the number of
/// transactions and the branch's balance.
///
/// # Errors
/// The heap holds something else, or the sums differ.
pub fn check(view: &View<'_>) -> Result<(u64, i64)> {
    let root = view
        .root::<Root<'_>>()?
        .ok_or_else(|| gordon::Error::abort("no database"))?;
    let database = root.read();
    let sum = |records: Array<'_, Balance>| {
        (0..records.len())
            .map(|at| records.get(at).expect("in range").balance)
            .sum::<i64>()
    };
    let count = database.count.get(0).expect("a count");
    let branch = sum(database.branches);
    let last = count
        .checked_sub(1)
        .map(|last| database.trail.get(last as usize % TRAIL));
    let trail = last.is_none_or(|audit| {
        audit
            .flatten()
            .is_some_and(|audit| audit.read().number + 1 == count)
    });
    if sum(database.accounts) != branch || sum(database.tellers) != branch || !trail {
        return Err(gordon::Error::abort("the books do not balance"));
    }
    Ok((count, branch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gordon::Options;
    use gordon::flash::Model;

    #[test]
    fn the_books_balance() {
        let heap = Heap::emulated(Model::intel(8).fast(), 24, Options::default()).expect("a heap");
        found(&heap).expect("a commit");
        for n in 0..3000_usize {
            transact(&heap, n * 7 % ACCOUNTS, n % TELLERS, n as i64 - 1000).expect("a commit");
        }
        let sum = (0..3000).map(|n| n - 1000).sum();
        assert_eq!(heap.view(check).expect("balanced"), (3000, sum));
    }
}
