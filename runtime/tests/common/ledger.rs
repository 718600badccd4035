//! A device that executes nothing and works out what comes after what.
//!
//! Each launch is a node. What a node comes after is closed over at once, by the rules of the pool
//! spec: a set of nodes for each stream, for each event, and for each node.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use scratchpool::tables::Launch;
use scratchpool::{Device, Error, Progress, StreamUser};

/// A set of nodes.
#[derive(Clone, Debug, Default)]
pub struct Set(Vec<u64>);

impl Set {
    pub fn insert(&mut self, node: usize) {
        if self.0.len() <= node / 64 {
            self.0.resize(node / 64 + 1, 0);
        }
        self.0[node / 64] |= 1 << (node % 64);
    }

    pub fn extend(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, other)| *mine |= other);
    }

    pub fn contains(&self, node: usize) -> bool {
        self.0.get(node / 64).is_some_and(|word| word >> (node % 64) & 1 == 1)
    }
}

impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        let words = self.0.len().max(other.0.len());
        let word = |set: &Self, at: usize| set.0.get(at).copied().unwrap_or(0);
        (0..words).all(|at| word(self, at) == word(other, at))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Whether it says what streams were given.
    pub sees: bool,
    book: Rc<RefCell<Book>>,
    /// Fails the wait or record that comes after so many more.
    pub fail: Rc<Cell<Option<usize>>>,
}

#[derive(Debug, Default)]
struct Book {
    /// By node, all that it comes after.
    nodes: Vec<Set>,
    /// What everything comes after from now on.
    done: Set,
    waits: usize,
    records: usize,
}

/// A stream. Cloning gives another handle.
#[derive(Clone, Debug)]
pub struct Lane(Rc<RefCell<LaneState>>);

#[derive(Debug, Default)]
struct LaneState {
    /// The nodes given to it, in order.
    given: Vec<usize>,
    /// What its next node comes after, besides its stream.
    waits: Set,
    step: Option<Launch>,
    owed: Option<Launch>,
    count: u64,
    unseen: bool,
    user: Option<StreamUser>,
}

impl Lane {
    /// From now on it may be given something that the device does not see.
    pub fn expose(&self) {
        self.0.borrow_mut().unseen = true;
    }
}

fn stronger(a: Launch, b: Launch) -> Launch {
    [Launch::Full, Launch::Dependent].into_iter().find(|it| [a, b].contains(it)).unwrap_or(a)
}

impl Ledger {
    pub fn new(sees: bool) -> Self {
        Self { sees, ..Self::default() }
    }

    /// Launches a kernel, as the step that is open says.
    pub fn launch(&self, lane: &Lane) {
        let (mut book, mut lane) = (self.book.borrow_mut(), lane.0.borrow_mut());
        let step = lane.step.take();
        let owed = lane.owed.take();
        let kind = match (step, owed) {
            (Some(step), Some(owed)) => stronger(step, owed),
            (Some(kind), None) => kind,
            (None, _) => Launch::Full,
        };
        let mut before = book.done.clone();
        before.extend(&std::mem::take(&mut lane.waits));
        let last = lane.given.last().copied();
        match (kind, last) {
            (Launch::Full, _) => {
                for &node in &lane.given {
                    before.insert(node);
                    before.extend(&book.nodes[node]);
                }
            }
            (Launch::Dependent, Some(last)) => {
                before.insert(last);
                before.extend(&book.nodes[last]);
            }
            (Launch::Early, Some(last)) => before.extend(&book.nodes[last]),
            (_, None) => {}
        }
        lane.given.push(book.nodes.len());
        lane.count += 1;
        book.nodes.push(before);
    }

    /// By node, all that it comes after.
    pub fn order(&self) -> Vec<Set> {
        self.book.borrow().nodes.clone()
    }

    /// Waits and records issued.
    pub fn calls(&self) -> (usize, usize) {
        let book = self.book.borrow();
        (book.waits, book.records)
    }

    fn may_fail(&self) -> Result<(), Error> {
        match self.fail.get() {
            Some(0) => {
                self.fail.set(None);
                Err(Error::device(std::io::Error::other("as asked")))
            }
            left => {
                self.fail.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }
}

// SAFETY: blocks are vectors that live until dropped, and nothing is ever executed in them. What a
// stream is given is counted, unless it is said to be exposed.
unsafe impl Device for Ledger {
    type Memory = Vec<u8>;
    type Stream = Lane;
    type Event = RefCell<Set>;

    fn allocate(&self, bytes: u64, _: u64) -> Result<Vec<u8>, Error> {
        Ok(vec![0; usize::try_from(bytes).unwrap() + 4096])
    }

    fn adopt(&self, _: &[Lane], _: &Vec<u8>) {}

    fn base(memory: &Vec<u8>) -> *mut u8 {
        let start = memory.as_ptr().cast_mut();
        start.wrapping_add(start.align_offset(4096))
    }

    fn create_stream(&self, _: &'static str) -> Result<Lane, Error> {
        Ok(Lane(Rc::default()))
    }

    fn owns(&self, _: &Lane) -> bool {
        true
    }

    fn create_event(&self) -> Result<RefCell<Set>, Error> {
        Ok(RefCell::default())
    }

    fn record(&self, lane: &Lane, event: &RefCell<Set>) -> Result<(), Error> {
        self.may_fail()?;
        let (mut book, lane) = (self.book.borrow_mut(), lane.0.borrow());
        book.records += 1;
        let mut covered = lane.waits.clone();
        for &node in &lane.given {
            covered.insert(node);
            covered.extend(&book.nodes[node]);
        }
        event.replace(covered);
        Ok(())
    }

    fn wait(&self, lane: &Lane, event: &RefCell<Set>) -> Result<(), Error> {
        self.may_fail()?;
        self.book.borrow_mut().waits += 1;
        let mut lane = lane.0.borrow_mut();
        lane.waits.extend(&event.borrow());
        lane.count += 1;
        Ok(())
    }

    fn issued(&self, lane: &Lane) -> Option<u64> {
        let lane = lane.0.borrow();
        (self.sees && !lane.unseen).then_some(lane.count)
    }

    unsafe fn enter_step(&self, lane: &Lane, launch: Launch) -> Result<(), Error> {
        lane.0.borrow_mut().step = Some(launch);
        Ok(())
    }

    fn leave_step(&self, lane: &Lane) -> Result<(), Error> {
        let mut lane = lane.0.borrow_mut();
        if let Some(empty) = lane.step.take() {
            lane.owed = Some(lane.owed.map_or(empty, |owed| stronger(owed, empty)));
        }
        Ok(())
    }

    fn take_turn(&self, lane: &Lane, user: StreamUser) -> bool {
        lane.0.borrow_mut().user.replace(user).is_none_or(|latest| latest == user)
    }

    fn follow(&self, _: &[Lane], _: &Progress) {}

    fn synchronize(&self) -> Result<(), Error> {
        let mut book = self.book.borrow_mut();
        for node in 0..book.nodes.len() {
            book.done.insert(node);
        }
        Ok(())
    }

    unsafe fn read_bytes(&self, _: &Lane, _: *const u8, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    unsafe fn write_bytes(&self, lane: &Lane, _: *mut u8, _: &[u8]) -> Result<(), Error> {
        self.launch(lane);
        Ok(())
    }
}
