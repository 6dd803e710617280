//! Transactions on accounts in far memory: the shortest adapter of an engine.
//!
//! ```text
//! cargo run --release -p yonder-oltp --example bank
//! ```
//!
//! A request moves a sum from one account to another. It reads both as if they were there, and is parked while one is
//! not; what others do meanwhile is seen at the commit, and the transfer is made again then.

use std::sync::Arc;

use yonder::sched::{Handler, Outcome, SchedConfig, serve_all, yield_now};
use yonder::{Config, FarMemory};
use yonder_oltp::{Database, Direction, Key, OltpError, STACK_BYTES, STRIPES_LOG2_DEFAULT};

const ACCOUNTS: Key = 40_000;
const TRANSFERS: Key = 10_000;
const OPENING_BALANCE: u64 = 1000;
/// The only table.
const ACCOUNT: usize = 0;
/// A balance, and what else a bank knows.
const ACCOUNT_BYTES: usize = 512;

struct Transfer {
    from: Key,
    to: Key,
    sum: u64,
}

struct Bank {
    database: Database,
}

impl Bank {
    fn open(far: &FarMemory) -> Result<Self, Box<dyn std::error::Error>> {
        let region = Arc::new(far.region(2 * ACCOUNTS as u64 * ACCOUNT_BYTES as u64)?);
        let database = Database::new(region, &[ACCOUNT_BYTES], STRIPES_LOG2_DEFAULT)?;
        for account in 0..ACCOUNTS {
            let mut transaction = database.begin();
            transaction.insert(ACCOUNT, account, &row(OPENING_BALANCE))?;
            transaction.commit()?;
        }
        Ok(Self { database })
    }

    /// Whether there was enough to move.
    fn try_transfer(&self, Transfer { from, to, sum }: &Transfer) -> Result<bool, OltpError> {
        let mut transaction = self.database.begin();
        let (mut giver, mut taker) = (row(0), row(0));
        let missing = OltpError::Missing { table: ACCOUNT, key: *from };
        let from = transaction.get(ACCOUNT, *from, &mut giver)?.ok_or(missing.clone())?;
        let to = transaction.get(ACCOUNT, *to, &mut taker)?.ok_or(missing)?;
        let Some(left) = balance(&giver).checked_sub(*sum) else { return Ok(false) };
        transaction.update(from, &row(left))?;
        transaction.update(to, &row(balance(&taker) + sum))?;
        transaction.commit().map(|_| true)
    }

    fn sum(&self) -> Result<u64, OltpError> {
        let mut transaction = self.database.begin();
        let (mut sum, mut account) = (0, row(0));
        for entry in transaction.scan(ACCOUNT, 0..=ACCOUNTS, Direction::Ascending, usize::MAX)? {
            transaction.read(&entry, &mut account)?;
            sum += balance(&account);
        }
        transaction.commit().map(|_| sum)
    }
}

impl Handler for Bank {
    type Request = Transfer;
    type Reply = Result<bool, OltpError>;

    fn handle(&self, transfer: Transfer) -> Self::Reply {
        loop {
            match self.try_transfer(&transfer) {
                Err(OltpError::Conflict) => yield_now(),
                done => return done,
            }
        }
    }
}

fn row(balance: u64) -> [u8; ACCOUNT_BYTES] {
    let mut row = [0; ACCOUNT_BYTES];
    row[..8].copy_from_slice(&balance.to_le_bytes());
    row
}

fn balance(row: &[u8; ACCOUNT_BYTES]) -> u64 {
    u64::from_le_bytes(row[..8].try_into().expect("a row has more"))
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let local = ACCOUNTS as u64 * ACCOUNT_BYTES as u64 / 5;
    let far = FarMemory::open("emu://?latency=2.5us&gbps=100", Config::with_local(local))?;
    let bank = Arc::new(Bank::open(&far)?);
    let transfer = |number: Key| {
        let from = number * 7919 % ACCOUNTS;
        Transfer { from, to: (from + 1 + number % 97) % ACCOUNTS, sum: 400 }
    };
    let config = SchedConfig { stack_bytes: STACK_BYTES, ..SchedConfig::with_workers(1) };
    let outcomes = serve_all(&config, &far, &bank, (0..TRANSFERS).map(transfer))?;
    let made = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Reply(Ok(true)))).count();
    println!("{made} of {TRANSFERS} transfers, {} pages fetched", far.stats().major_faults);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Reply(Ok(_)))), "a transfer has failed");
    assert_eq!(bank.sum()?, ACCOUNTS as u64 * OPENING_BALANCE, "money was made or lost");
    Ok(())
}
