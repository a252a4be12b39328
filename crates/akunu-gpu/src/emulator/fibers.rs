//! Fibers: the threads of one threadgroup, each with a stack of its own, that give way to each other at barriers and SIMD
//! operations. A SIMD operation is a meeting of 32 fibers who leave a word each and read all of them.

use std::arch::naked_asm;
use std::cell::{Cell, RefCell};

use super::Entry;

/// The order in which threads, and threadgroups, are taken. Right kernels give the same with all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// One after the other.
    InTurn,
    /// The first SIMD group as far ahead as barriers let it.
    FirstAhead,
    /// The last SIMD group as far ahead as barriers let it; the last threadgroup first.
    LastAhead,
}

impl Schedule {
    /// Every schedule.
    pub const ALL: [Schedule; 3] = [Schedule::InTurn, Schedule::FirstAhead, Schedule::LastAhead];
}

/// Lanes of a SIMD group.
const LANES: usize = 32;

/// Bytes of a fiber's stack. Not a multiple of a cache's size: what all fibers use must not lie in the same places of it.
const STACK: usize = 65 * 1024 + 64;

/// A kernel and what it is called with.
pub(super) type Call = (Entry, *const u64, *const u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// Waits for its SIMD group to leave this generation.
    Simd(u32),
    /// Waits for the threadgroup to leave this generation.
    Group(u32),
    Done,
}

struct Fiber {
    stack_pointer: *mut u8,
    state: State,
}

/// A place where fibers meet.
#[derive(Clone, Copy, Default)]
struct Meeting {
    arrived: usize,
    live: usize,
    generation: u32,
    /// Where the first to arrive came from; all must come from there.
    site: usize,
}

struct Simd {
    meeting: Meeting,
    /// Two sets, so that those who are ahead do not overwrite what others still read.
    words: [[u32; LANES]; 2],
    /// The same of four words each.
    fours: [[u128; LANES]; 2],
}

/// One threadgroup.
struct Team {
    call: Call,
    group: [u32; 3],
    schedule: Schedule,
    fibers: Vec<Fiber>,
    simds: Vec<Simd>,
    all: Meeting,
    current: usize,
    /// Where the launcher waits.
    main: *mut u8,
    problem: Option<String>,
}

thread_local! {
    /// The threadgroup that runs on this thread.
    static TEAM: Cell<*mut Team> = const { Cell::new(std::ptr::null_mut()) };
    /// Stacks, kept from launch to launch.
    static STACKS: RefCell<Vec<Box<[u128]>>> = const { RefCell::new(Vec::new()) };
}

/// Runs a kernel over a grid of threadgroups, one after the other.
///
/// # Safety
/// The kernel may be called with these addresses, and no other threadgroup runs in this process.
pub(super) unsafe fn launch(
    call: Call,
    groups: [u32; 3],
    threads: u32,
    schedule: Schedule,
) -> Result<(), String> {
    let threads = threads as usize;
    let tops: Vec<*mut u8> = STACKS.with_borrow_mut(|stacks| {
        while stacks.len() < threads {
            stacks.push(vec![0u128; STACK / 16].into_boxed_slice());
        }
        stacks[..threads].iter_mut().map(|stack| stack.as_mut_ptr_range().end.cast()).collect()
    });
    let mut team = Team {
        call,
        group: [0; 3],
        schedule,
        fibers: Vec::with_capacity(threads),
        simds: Vec::with_capacity(threads.div_ceil(LANES)),
        all: Meeting::default(),
        current: 0,
        main: std::ptr::null_mut(),
        problem: None,
    };
    for i in 0..groups[2] {
        for j in 0..groups[1] {
            for k in 0..groups[0] {
                team.group = if schedule == Schedule::LastAhead {
                    [groups[0] - 1 - k, groups[1] - 1 - j, groups[2] - 1 - i]
                } else {
                    [k, j, i]
                };
                team.all = Meeting { live: threads, ..Meeting::default() };
                team.simds.clear();
                let lanes = |i| LANES.min(threads - i * LANES);
                team.simds.extend((0..threads.div_ceil(LANES)).map(|i| Simd {
                    meeting: Meeting { live: lanes(i), ..Meeting::default() },
                    words: [[0; LANES]; 2],
                    fours: [[0; LANES]; 2],
                }));
                team.fibers.clear();
                team.fibers.extend(tops.iter().map(|&top| {
                    // SAFETY: every top is the end of a stack of its own.
                    let stack_pointer = unsafe { prepare(top) };
                    Fiber { stack_pointer, state: State::Ready }
                }));
                team.current = if schedule == Schedule::LastAhead { threads - 1 } else { 0 };
                let (team_pointer, first) = (&raw mut team, team.fibers[team.current].stack_pointer);
                TEAM.set(team_pointer);
                // SAFETY: the fiber was just prepared; it comes back here when all are done or one found a problem.
                unsafe { switch(&raw mut (*team_pointer).main, first) };
                TEAM.set(std::ptr::null_mut());
                if let Some(problem) = team.problem.take() {
                    return Err(problem);
                }
            }
        }
    }
    Ok(())
}

/// The team of this thread; only called from its fibers.
fn team<'a>() -> &'a mut Team {
    // SAFETY: set by `launch` for as long as fibers run, which all run on this thread, one at a time; no reference is held across
    // a switch.
    unsafe { &mut *TEAM.get() }
}

impl Team {
    fn is_ready(&self, i: usize) -> bool {
        match self.fibers[i].state {
            State::Ready => true,
            State::Simd(generation) => self.simds[i / LANES].meeting.generation != generation,
            State::Group(generation) => self.all.generation != generation,
            State::Done => false,
        }
    }

    /// Who goes on after the current fiber has stopped.
    fn next(&self) -> Option<usize> {
        let count = self.fibers.len();
        let ready = |i: &usize| self.is_ready(*i);
        match self.schedule {
            Schedule::InTurn => (self.current + 1..count).chain(0..=self.current).find(ready),
            Schedule::FirstAhead => (0..count).find(ready),
            Schedule::LastAhead => (0..count).rev().find(ready),
        }
    }
}

/// Lets others run until this fiber can go on.
fn give_way() {
    let team = team();
    let me = team.current;
    let to = match team.next() {
        Some(next) if next == me => {
            team.fibers[me].state = State::Ready;
            return;
        }
        Some(next) => {
            team.current = next;
            team.fibers[next].state = State::Ready;
            team.fibers[next].stack_pointer
        }
        None if team.all.live == 0 => team.main,
        None => {
            return stop("some threads wait at a barrier or SIMD operation that others do not reach");
        }
    };
    let save = &raw mut team.fibers[me].stack_pointer;
    // SAFETY: `to` was saved by a switch or prepared, and is not running.
    unsafe { switch(save, to) };
}

/// Ends the launch with a problem.
fn stop(problem: &str) {
    let team = team();
    team.problem = Some(format!("{problem} (thread {} of threadgroup {:?})", team.current, team.group));
    let (save, main) = (&raw mut team.fibers[team.current].stack_pointer, team.main);
    // SAFETY: the launcher waits there; this fiber is never resumed.
    unsafe { switch(save, main) };
}

/// What every fiber runs.
extern "C" fn run_fiber() -> ! {
    let (entry, buffers, params) = team().call;
    // SAFETY: the caller of `launch` promised that these may be called so.
    unsafe { entry(buffers, params) };
    let team = team();
    let me = team.current;
    team.fibers[me].state = State::Done;
    team.all.live -= 1;
    let simd = &mut team.simds[me / LANES].meeting;
    simd.live -= 1;
    if simd.arrived > 0 || team.all.arrived > 0 {
        stop("a thread ended while others wait for it");
    }
    give_way();
    unreachable!("a fiber that is done was resumed")
}

/// Meets the others; true when this fiber was the last to arrive.
fn arrive(meeting: &mut Meeting, site: usize) -> Result<bool, &'static str> {
    if meeting.arrived == 0 {
        meeting.site = site;
    } else if meeting.site != site {
        return Err("threads meet at different places of the kernel");
    }
    meeting.arrived += 1;
    let last = meeting.arrived == meeting.live;
    if last {
        meeting.arrived = 0;
        meeting.generation = meeting.generation.wrapping_add(1);
    }
    Ok(last)
}

extern "C" fn meet_group(site: usize) {
    let team = team();
    let generation = team.all.generation;
    match arrive(&mut team.all, site) {
        Ok(true) => {}
        Ok(false) => {
            team.fibers[team.current].state = State::Group(generation);
            give_way();
        }
        Err(problem) => stop(problem),
    }
}

extern "C" fn meet_simd(site: usize) {
    let team = team();
    let simd = &mut team.simds[team.current / LANES];
    let generation = simd.meeting.generation;
    match arrive(&mut simd.meeting, site) {
        Ok(true) => {}
        Ok(false) => {
            team.fibers[team.current].state = State::Simd(generation);
            give_way();
        }
        Err(problem) => stop(problem),
    }
}

extern "C" fn exchange(bits: u32, site: usize) -> *const u32 {
    let team = team();
    let simd = &mut team.simds[team.current / LANES];
    let set = &mut simd.words[simd.meeting.generation as usize % 2];
    set[team.current % LANES] = bits;
    let words = set.as_ptr();
    meet_simd(site);
    words
}

extern "C" fn exchange_four(a: u32, b: u32, c: u32, d: u32, site: usize) -> *const u128 {
    let team = team();
    let simd = &mut team.simds[team.current / LANES];
    let set = &mut simd.fours[simd.meeting.generation as usize % 2];
    let four = [a, b, c, d].iter().rev().fold(0, |all, &word| all << 32 | u128::from(word));
    set[team.current % LANES] = four;
    let words = set.as_ptr();
    meet_simd(site);
    words
}

// What the kernels call. Meetings are told apart by the address they return to.

#[unsafe(no_mangle)]
extern "C" fn akunu_emulator_thread() -> u32 {
    team().current as u32
}

#[unsafe(no_mangle)]
extern "C" fn akunu_emulator_group(axis: u32) -> u32 {
    team().group[axis as usize]
}

#[cfg(target_arch = "x86_64")]
mod processor {
    use super::*;

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn akunu_emulator_group_barrier() {
        naked_asm!("mov rdi, [rsp]", "jmp {}", sym meet_group)
    }

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn akunu_emulator_simd_barrier() {
        naked_asm!("mov rdi, [rsp]", "jmp {}", sym meet_simd)
    }

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn akunu_emulator_exchange(bits: u32) -> *const u32 {
        naked_asm!("mov rsi, [rsp]", "jmp {}", sym exchange)
    }

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn akunu_emulator_exchange_four(a: u32, b: u32, c: u32, d: u32) -> *const u128 {
        naked_asm!("mov r8, [rsp]", "jmp {}", sym exchange_four)
    }

    /// Saves this fiber's registers and stack pointer, and goes on with another's.
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn switch(save: *mut *mut u8, to: *mut u8) {
        naked_asm!(
            "push rbp",
            "push rbx",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "mov [rdi], rsp",
            "mov rsp, rsi",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbx",
            "pop rbp",
            "ret",
        )
    }

    /// A stack on which [`switch`] begins [`run_fiber`].
    ///
    /// # Safety
    /// `top` is the end of a stack, aligned to 16 bytes.
    pub(super) unsafe fn prepare(top: *mut u8) -> *mut u8 {
        // From the top: a return address that is never used, the function, six saved registers.
        // SAFETY: the stack is larger than these 64 bytes.
        unsafe {
            let words = top.cast::<usize>();
            words.sub(1).write(0);
            words.sub(2).write(run_fiber as *const () as usize);
            (3..=8).for_each(|i| words.sub(i).write(0));
            words.sub(8).cast()
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod processor {
    use super::*;

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn akunu_emulator_group_barrier() {
        naked_asm!("mov x0, x30", "b {}", sym meet_group)
    }

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn akunu_emulator_simd_barrier() {
        naked_asm!("mov x0, x30", "b {}", sym meet_simd)
    }

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn akunu_emulator_exchange(bits: u32) -> *const u32 {
        naked_asm!("mov x1, x30", "b {}", sym exchange)
    }

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn akunu_emulator_exchange_four(a: u32, b: u32, c: u32, d: u32) -> *const u128 {
        naked_asm!("mov x4, x30", "b {}", sym exchange_four)
    }

    /// Saves this fiber's registers and stack pointer, and goes on with another's.
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn switch(save: *mut *mut u8, to: *mut u8) {
        naked_asm!(
            "sub sp, sp, #160",
            "stp x19, x20, [sp]",
            "stp x21, x22, [sp, #16]",
            "stp x23, x24, [sp, #32]",
            "stp x25, x26, [sp, #48]",
            "stp x27, x28, [sp, #64]",
            "stp x29, x30, [sp, #80]",
            "stp d8, d9, [sp, #96]",
            "stp d10, d11, [sp, #112]",
            "stp d12, d13, [sp, #128]",
            "stp d14, d15, [sp, #144]",
            "mov x9, sp",
            "str x9, [x0]",
            "mov sp, x1",
            "ldp x19, x20, [sp]",
            "ldp x21, x22, [sp, #16]",
            "ldp x23, x24, [sp, #32]",
            "ldp x25, x26, [sp, #48]",
            "ldp x27, x28, [sp, #64]",
            "ldp x29, x30, [sp, #80]",
            "ldp d8, d9, [sp, #96]",
            "ldp d10, d11, [sp, #112]",
            "ldp d12, d13, [sp, #128]",
            "ldp d14, d15, [sp, #144]",
            "add sp, sp, #160",
            "ret",
        )
    }

    /// A stack on which [`switch`] begins [`run_fiber`].
    ///
    /// # Safety
    /// `top` is the end of a stack, aligned to 16 bytes.
    pub(super) unsafe fn prepare(top: *mut u8) -> *mut u8 {
        // SAFETY: the stack is larger than these 160 bytes; the address to return to is the twelfth word.
        unsafe {
            let words = top.sub(160).cast::<usize>();
            (0..20).for_each(|i| words.add(i).write(0));
            words.add(11).write(run_fiber as *const () as usize);
            words.cast()
        }
    }
}

use processor::{prepare, switch};

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        safe fn akunu_emulator_group_barrier();
        safe fn akunu_emulator_exchange(bits: u32) -> *const u32;
    }

    fn run(entry: Entry, buffer: &mut [u32], threads: u32, schedule: Schedule) -> Result<(), String> {
        let _one = super::super::RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let buffers = [buffer.as_mut_ptr() as u64];
        // SAFETY: the kernels below write one word per thread.
        unsafe { launch((entry, buffers.as_ptr(), std::ptr::null()), [2, 1, 1], threads, schedule) }
    }

    /// Every thread writes what the thread opposite in its SIMD group has.
    unsafe extern "C" fn reverse(buffers: *const u64, _: *const u8) {
        let thread = akunu_emulator_thread();
        let words = akunu_emulator_exchange(100 + thread);
        akunu_emulator_group_barrier();
        // SAFETY: the test gives a word for each thread, and lanes are below 32.
        unsafe { *(*buffers as *mut u32).add(thread as usize) = *words.add(31 - thread as usize % 32) };
    }

    /// Only half of the threads come to the barrier.
    unsafe extern "C" fn diverge(_: *const u64, _: *const u8) {
        if akunu_emulator_thread().is_multiple_of(2) {
            akunu_emulator_group_barrier();
        }
    }

    #[test]
    fn lanes_exchange_words_in_every_schedule() {
        for schedule in Schedule::ALL {
            let mut out = [0; 64];
            run(reverse, &mut out, 64, schedule).unwrap();
            assert_eq!((out[0], out[31], out[32], out[63]), (131, 100, 163, 132), "{schedule:?}");
        }
    }

    #[test]
    fn a_barrier_that_some_threads_miss_is_an_error() {
        for schedule in Schedule::ALL {
            assert!(run(diverge, &mut [], 64, schedule).is_err(), "{schedule:?}");
        }
    }
}
